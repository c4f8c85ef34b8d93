package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 40 * time.Second

// bench makes clients of one server, and unique names.
type bench struct {
	bootstrap  string
	suffix     string
	namesGiven int
}

func newBench(bootstrap string) *bench {
	random := make([]byte, 4)
	if _, err := rand.Read(random); err != nil {
		panic(err)
	}
	return &bench{bootstrap: bootstrap, suffix: hex.EncodeToString(random)}
}

func (b *bench) name(what string) string {
	b.namesGiven++
	return fmt.Sprintf("go-%s-%s-%d", what, b.suffix, b.namesGiven)
}

func (b *bench) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.bootstrap)}, options...)...)
}

// admin runs body with an administration client.
func (b *bench) admin(body func(*kadm.Client) error) error {
	client, err := b.client()
	if err != nil {
		return err
	}
	defer client.Close()
	return body(kadm.NewClient(client))
}

func (b *bench) topic(ctx context.Context, what string, partitions int32) (string, error) {
	topic := b.name(what)
	err := b.admin(func(admin *kadm.Client) error {
		if _, err := admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
			return err
		}
		return eventually(func() error {
			found, err := admin.ListTopics(ctx, topic)
			return all(err, same("listed", found.Has(topic), true))
		})
	})
	return topic, err
}

// produce sends values PREFIX0, PREFIX1, ... and waits until each is acknowledged.
func (b *bench) produce(ctx context.Context, topic, prefix string, count int, options ...kgo.Opt) error {
	client, err := b.client(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, count)
	for n := range records {
		key, value := fmt.Sprintf("key-%d", n%31), fmt.Sprintf("%s%d", prefix, n)
		records[n] = &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// read reads a topic from its beginning until count records have come.
func (b *bench) read(ctx context.Context, topic string, count int, options ...kgo.Opt) ([]*kgo.Record, error) {
	options = append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	client, err := b.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return poll(ctx, client, count)
}

func poll(ctx context.Context, client *kgo.Client, count int) ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records read: %w", len(records), count, err)
		}
		records = append(records, fetches.Records()...)
	}
	return records, same("records read", len(records), count)
}

func values(records []*kgo.Record) []string {
	found := make([]string, len(records))
	for at, record := range records {
		found[at] = string(record.Value)
	}
	return found
}

// numbered returns the values that produce sends.
func numbered(prefix string, count int) []string {
	expected := make([]string, count)
	for n := range expected {
		expected[n] = fmt.Sprintf("%s%d", prefix, n)
	}
	return expected
}

func same[T any](what string, found, expected T) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("%s: expected %v, found %v", what, expected, found)
	}
	return nil
}

// all returns the first error.
func all(errs ...error) error {
	at := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if at < 0 {
		return nil
	}
	return errs[at]
}

// eventually repeats a check until it passes, for states that are reached shortly after a reply.
func eventually(check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// member is a member of a group with a goroutine of its own: it notes values and commits before it polls again.
type member struct {
	client *kgo.Client
	ended  chan error

	mutex sync.Mutex
	owned map[int32]bool
	seen  []string
}

func (b *bench) member(topic, group string, options ...kgo.Opt) (*member, error) {
	m := &member{ended: make(chan error, 1), owned: map[int32]bool{}}
	lost := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.own(gone[topic], false) }
	own := func(_ context.Context, _ *kgo.Client, got map[string][]int32) { m.own(got[topic], true) }
	client, err := b.client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.OnPartitionsAssigned(own), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	m.client = client
	go func() { m.ended <- m.run() }()
	return m, nil
}

func (m *member) run() error {
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		m.mutex.Lock()
		m.seen = append(m.seen, values(fetches.Records())...)
		m.mutex.Unlock()
		if err := m.client.CommitUncommittedOffsets(context.Background()); err != nil {
			return err
		}
		m.client.AllowRebalance()
	}
}

func (m *member) own(partitions []int32, owned bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partition := range partitions {
		if owned {
			m.owned[partition] = true
		} else {
			delete(m.owned, partition)
		}
	}
}

func (m *member) share() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(m.owned)
}

func (m *member) values() []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Clone(m.seen)
}

// stop leaves the group and reports the member's error, if there was one.
func (m *member) stop() error {
	m.client.CloseAllowingRebalance()
	select {
	case err := <-m.ended:
		return err
	case <-time.After(patience):
		return fmt.Errorf("a member did not stop within %v", patience)
	}
}
