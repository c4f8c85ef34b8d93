"""confluent-kafka (librdkafka) against the server under test: `main.py BOOTSTRAP SERVER [CASE...]`.

Each case has its own topics and groups; its report goes to standard output as xtask expects it.
"""

import sys
import threading
import traceback

import admin_cases
import client_cases
from bench import Bench

CASE_LIMIT_S = 90


def passes(body, bench):
    """Runs a case on a thread of its own, so that one that hangs is only that case's failure."""
    outcome = []

    def run():
        try:
            body(bench)
            outcome.append(True)
        except BaseException:  # noqa: B036 - whatever ends a case is its failure
            traceback.print_exc(file=sys.stdout)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CASE_LIMIT_S)
    if thread.is_alive():
        print(f"no end within {CASE_LIMIT_S} s; it stands at")
        traceback.print_stack(sys._current_frames()[thread.ident], file=sys.stdout)
    return outcome == [True]


def absent(_bench):
    raise LookupError("there is no such case")


def main():
    bootstrap, server, *only = sys.argv[1:]
    bench = Bench(bootstrap, server)
    cases = {**client_cases.CASES, **admin_cases.CASES}
    wanted = only or list(cases)
    for name in wanted:
        print(f"@plan {name}")
    for name in wanted:
        print(f"@begin {name}")
        print("@pass" if passes(cases.get(name, absent), bench) else "@fail", name)


main()
