#!/usr/bin/python3
"""An application with one database role whose background jobs stay out of the way of its web requests.

It connects as one role and opens no second pool: a job says which class it belongs to, `SET LOCAL pg_sluice.class`, and what it
is, `SET LOCAL pg_sluice.ticket`. Whatever a job runs is then counted as the job's. docs/callers.md explains each step.

    background_jobs.py "dbname=shop user=app" --jobs 12 --requests 50
"""
import argparse
import random
import re
import sys
import threading
import time
import uuid

import psycopg2

NOT_AVAILABLE = ("53000", "53300")  # pg_sluice refused, nothing was executed: come again later


def detail_of(error):
    """The machine-readable line of a refusal as a dictionary."""
    line = (error.diag.message_detail or "") if error.diag else ""
    return dict(pair.split("=", 1) for pair in line.split() if "=" in pair) if line.startswith("sluice ") else {}


class Application:
    """Runs transactions, and tries again what was not available, under one id and no sooner than it was told."""

    def __init__(self, dsn):
        self.dsn = dsn
        self.lock = threading.Lock()
        self.retries = {"request": 0, "job": 0}

    def transaction(self, kind, execution_class, work, patience=300):
        """One transaction of a class (None: the role's own). `work` gets a cursor; it is executed once, or an error is raised."""
        ticket = str(uuid.uuid4())  # one id for all attempts: they keep the age of the first
        until = time.monotonic() + patience
        while True:
            try:
                return self.attempt(execution_class, ticket, work)
            except psycopg2.Error as error:
                refusal = detail_of(error)
                # A refused login has no SQLSTATE in psycopg2 2.9, but its text has the line.
                text = re.search(r"sluice reason=.* retry_after_ms=(\d+)", str(error))
                if error.pgcode not in NOT_AVAILABLE and not text or time.monotonic() > until:
                    raise
                with self.lock:
                    self.retries[kind] += 1
                time.sleep(int(refusal.get("retry_after_ms") or text.group(1)) / 1000)

    def attempt(self, execution_class, ticket, work):
        connection = psycopg2.connect(self.dsn)
        try:
            with connection, connection.cursor() as cursor:  # BEGIN … COMMIT, or ROLLBACK
                if execution_class:
                    cursor.execute("SET LOCAL pg_sluice.class = %s", (execution_class,))
                cursor.execute("SET LOCAL pg_sluice.ticket = %s", (ticket,))
                return work(cursor)
        finally:
            connection.close()

    def request(self, number):
        """A web request: short, in the class the role is assigned to."""
        self.transaction("request", None, lambda cursor: cursor.execute(
            "INSERT INTO work (kind, number) VALUES ('request', %s)", (number,)))

    def job(self, number, seconds):
        """A background job: long, and everything it runs is in the background class."""
        def work(cursor):
            cursor.execute("INSERT INTO work (kind, number) VALUES ('job', %s)", (number,))
            cursor.execute("SELECT pg_sleep(%s)", (seconds,))
        self.transaction("job", "background", work)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dsn")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--job-seconds", type=float, default=0.5)
    options = parser.parse_args()
    application = Application(options.dsn)
    failures = []

    def guarded(function, *arguments):
        try:
            function(*arguments)
        except psycopg2.Error as error:
            failures.append(error)

    jobs = [threading.Thread(target=guarded, args=(application.job, i, options.job_seconds)) for i in range(options.jobs)]
    for job in jobs:
        job.start()
    for i in range(options.requests):
        guarded(application.request, i)
        time.sleep(random.uniform(0, 0.02))
    for job in jobs:
        job.join()
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    print(f"{options.requests} requests ({application.retries['request']} tried again), "
          f"{options.jobs} jobs ({application.retries['job']} tried again), {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
