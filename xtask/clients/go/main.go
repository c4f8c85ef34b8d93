// Program client runs franz-go against the server under test: `client BOOTSTRAP SERVER [CASE...]`.
// Each case has its own topics and groups; its report goes to standard output as xtask expects it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

const caseLimit = 90 * time.Second

// testCase is a named case; an error is its failure.
type testCase struct {
	name string
	run  func(context.Context, *bench) error
}

var errAbsent = errors.New("there is no such case")

func main() {
	b := newBench(os.Args[1])
	cases := slices.Concat(clientCases, adminCases)
	wanted := os.Args[3:]
	if len(wanted) == 0 {
		for _, c := range cases {
			wanted = append(wanted, c.name)
		}
	}
	for _, name := range wanted {
		fmt.Println("@plan", name)
	}
	for _, name := range wanted {
		fmt.Println("@begin", name)
		verdict := "@pass"
		if err := runNamed(b, cases, name); err != nil {
			fmt.Println(err)
			verdict = "@fail"
		}
		fmt.Println(verdict, name)
	}
}

func runNamed(b *bench, cases []testCase, name string) error {
	at := slices.IndexFunc(cases, func(c testCase) bool { return c.name == name })
	if at < 0 {
		return errAbsent
	}
	ctx, cancel := context.WithTimeout(context.Background(), caseLimit)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- cases[at].run(ctx, b) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(caseLimit + 10*time.Second):
		return fmt.Errorf("no end within %v", caseLimit)
	}
}
