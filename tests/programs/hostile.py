"""A correct implementation of `canary`, a store of tokens, that misbehaves on request: `hostile.py BEHAVIOUR MOMENT`.

INSTEAD and CHANGED have the behaviours, MOMENTS the moments. `test_sut.py` runs most pairs.
"""

import json
import math
import os
import signal
import sys
import time


def write(data):
    os.write(1, data)


def forever(stream, data):
    while True:
        os.write(stream, data)


def drip():
    for each in b'{"id":1,"outcomes":[0]}' * 100:
        write(bytes([each]))
        time.sleep(0.02)


def sleep():
    time.sleep(60)


def after(*calls):
    for call in calls:
        call()


def orphan():
    if os.fork():
        os._exit(0)
    sleep()


def with_helper(*, then):
    """A helper process, in a process group of its own, that does not notice the end of its input."""
    helper = os.fork()
    if not helper:
        os.setpgid(0, 0)
        sleep()
    write(b'{"pid":%d}\n' % helper)
    then()


def reply_with(**changes):
    return lambda reply: {**reply, **changes}


def outcomes(change):
    return lambda reply: {**reply, "outcomes": change(reply["outcomes"])} if "outcomes" in reply else {}


#: behaviour -> what the program does instead of replying, and the kind of finding that it must cause
INSTEAD = {
    "silence": (sleep, "hang"),
    "half a line": (lambda: after(lambda: write(b'{"id":'), sleep), "hang"),
    "drip": (drip, "hang"),
    "stop": (lambda: os.kill(os.getpid(), signal.SIGSTOP), "hang"),
    "flood of errors": (lambda: forever(2, b"x" * 65536), "hang"),
    "endless line": (lambda: forever(1, b"1" * 65536), "protocol"),
    "endless lines": (lambda: forever(1, b"{}\n" * 9999), "protocol"),
    "exit": (lambda: os._exit(0), "crash"),
    "failure": (lambda: after(lambda: os.write(2, b"out of luck\n"), lambda: os._exit(3)), "crash"),
    "segmentation fault": (lambda: os.kill(os.getpid(), signal.SIGSEGV), "crash"),
    "orphan keeps the pipes": (orphan, "crash"),
    "helper process": (lambda: with_helper(then=sleep), "protocol"),
    "closed output": (lambda: after(lambda: os.close(1), sleep), "protocol"),
    "binary": (lambda: write(b"\xff\x00\xfe\n"), "protocol"),
    "empty line": (lambda: write(b"\n"), "protocol"),
    "list": (lambda: write(b"[]\n"), "protocol"),
    "null": (lambda: write(b"null\n"), "protocol"),
    "deep": (lambda: write(b"[" * 50_000 + b"\n"), "protocol"),
    "huge number": (lambda: write(b'{"id":' + b"9" * 5000 + b"}\n"), "protocol"),
    "duplicate keys": (lambda: write(b'{"id":0,"id":0}\n'), "protocol"),
}
#: behaviour -> how the reply differs from the correct one, and the kind of finding that it must cause
CHANGED = {
    "wrong id": (reply_with(id=-1), "protocol"),
    "id of another type": (lambda reply: {**reply, "id": float(reply["id"])}, "protocol"),
    "error": (reply_with(error="no memory"), "crash"),
    "no outcomes": (reply_with(outcomes=None), "protocol"),
    "too many outcomes": (outcomes(lambda each: [*each, 0]), "protocol"),
    "one more token": (outcomes(lambda each: [o + 1 if isinstance(o, int) else o for o in each]), "outcome"),
    "true for one": (outcomes(lambda each: [True if o == 1 else o for o in each]), "outcome"),
    "text for numbers": (outcomes(lambda each: [str(o) for o in each]), "outcome"),
    "another refusal": (
        outcomes(lambda each: [o if isinstance(o, int) else {"refused": "no"} for o in each]),
        "outcome",
    ),
    "other state": (reply_with(observed={"tokens": -1, "taken": 0}), "view"),
    "nested": (lambda reply: {**reply, "nested": json.loads("[" * 500 + "]" * 500)}, "protocol"),
    "not a number": (reply_with(observed=math.nan), "protocol"),
    "half a surrogate pair": (reply_with(observed="\ud800"), "protocol"),
    "number of 4000 digits": (outcomes(lambda each: [10**3999 for _ in each]), "outcome"),
    "another state, twice": (lambda reply: {**reply, "observed": [reply.get("observed")] * 2}, "view"),
    "no state": (reply_with(observed=None), "view"),
}
#: moment -> function from the number of a line and its number of calls to whether the program misbehaves
MOMENTS = {
    "hello": lambda number, calls: number == 0,
    "first request": lambda number, calls: number == 1,
    "third request": lambda number, calls: number == 3,
    "every request": lambda number, calls: calls > 0,
    "whole traces": lambda number, calls: calls > 1,
}


def main(behaviour, moment):
    tokens = taken = most = 0
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        calls = request.get("calls", [])
        reply = {"brokerproof": 1, "name": behaviour}
        if number:
            if "config" in request:
                tokens, taken, most = 0, 0, request["config"]["capacity"]
            done = []
            for action, count in calls:
                if action == "add" and tokens + count > most:
                    done.append({"refused": "illegal_argument"})
                    continue
                given = count if action == "add" else min(count, tokens)
                tokens += given if action == "add" else -given
                taken += given if action == "take" else 0
                done.append(tokens if action == "add" else given)
            reply = {"id": request["id"], "outcomes": done, "observed": {"tokens": tokens, "taken": taken}}
        if MOMENTS.get(moment, lambda *_: False)(number, len(calls)):
            if behaviour in INSTEAD:
                INSTEAD[behaviour][0]()
                continue
            reply = CHANGED[behaviour][0](reply)
        write(json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
