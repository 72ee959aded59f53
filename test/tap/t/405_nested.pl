# Statements inside statements: however deep the first real one lies, it queues once, answers right, and gives back what it took.
# A function that an index calls names its table in full: from 17 on an index is built under a search path of its own.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('nested', roles => ['app'], conf => { max_connections => 30 });
$server->run('GRANT CREATE ON SCHEMA public TO app; CREATE TABLE n (i int); INSERT INTO n SELECT generate_series(1, 100); ALTER TABLE n OWNER TO app');
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });
my ($holder, $session) = map { $server->connect('app') } 1 .. 2;
my $simple = \&Sluice::Wire::query_message;

$session->run($_) for (
  q{CREATE FUNCTION at_planning() RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT count(*) FROM n'},
  q{CREATE FUNCTION at_planning_pl() RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM public.n); END'},
  q{CREATE FUNCTION looping() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE s bigint := 0; r record;
    BEGIN FOR r IN SELECT i FROM n LOOP s := s + r.i; END LOOP; RETURN s; END $$},
  q{CREATE FUNCTION with_cursor() RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS $$ DECLARE c CURSOR FOR SELECT i FROM n ORDER BY i; s bigint := 0; v int;
    BEGIN OPEN c; LOOP FETCH c INTO v; EXIT WHEN NOT FOUND; s := s + v; END LOOP; CLOSE c; RETURN s; END $$},
  q{CREATE FUNCTION catching() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 / (i - i) FROM n; RETURN 'no error';
    EXCEPTION WHEN division_by_zero THEN RETURN (SELECT count(*)::text FROM n); END $$},
  q{CREATE FUNCTION recursive(d int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN IF d = 0 THEN RETURN (SELECT count(*) FROM n); END IF;
    RETURN (SELECT recursive(d - 1)); END $$},
  q{CREATE FUNCTION dynamic() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE c bigint; BEGIN EXECUTE 'SELECT count(*) FROM n' INTO c; RETURN c; END $$},
  q{CREATE FUNCTION set_returning() RETURNS SETOF int LANGUAGE sql AS 'SELECT i FROM n ORDER BY i'},
  q{CREATE FUNCTION count_up(int) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN $1 + (SELECT count(*) FROM n); END'},
  q{CREATE PROCEDURE committing() LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM n; COMMIT; PERFORM count(*) FROM n; ROLLBACK; PERFORM count(*) FROM n; END'},
  q{CREATE TABLE audited (i int)}, q{CREATE TABLE audit (i bigint)},
  q{CREATE FUNCTION audit_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit SELECT count(*) FROM n; RETURN NEW; END'},
  q{CREATE TRIGGER t AFTER INSERT ON audited FOR EACH ROW EXECUTE FUNCTION audit_row()},
  q{CREATE CONSTRAINT TRIGGER d AFTER INSERT ON audited DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit_row()},
  q{CREATE TABLE parent (i int PRIMARY KEY)}, q{INSERT INTO parent VALUES (1)}, q{CREATE TABLE child (i int REFERENCES parent ON DELETE CASCADE)},
  q{CREATE INDEX ON n (i)}, q{CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM n},
  q{PREPARE p AS SELECT count(*) FROM n}, q{PREPARE pi (int) AS INSERT INTO n VALUES ($1) RETURNING i});

# name, statement, the first column of the first row (undef: no row), how to put things back.
my @nested = (
  [ 'immutable SQL function run at planning', 'SELECT at_planning()', 100 ],
  [ 'immutable PL function run at planning', 'SELECT at_planning_pl()', 100 ],
  [ 'immutable function in a condition', 'SELECT count(*) FROM n WHERE i <= at_planning_pl()', 100 ],
  [ 'immutable function in EXPLAIN ANALYZE', 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT at_planning_pl()', 'Result (actual rows=1 loops=1)' ],
  [ 'immutable function inside PREPARE and EXECUTE', 'DEALLOCATE ALL; PREPARE q AS SELECT at_planning_pl(); EXECUTE q', 100, 'PREPARE p AS SELECT count(*) FROM n; PREPARE pi (int) AS INSERT INTO n VALUES ($1) RETURNING i' ],
  [ 'loop over a query', 'SELECT looping()', 5050 ], [ 'cursor in a function at planning', 'SELECT with_cursor()', 5050 ],
  [ 'exception block', 'SELECT catching()', 100 ], [ 'recursion', 'SELECT recursive(5)', 100 ], [ 'dynamic SQL', 'SELECT dynamic()', 100 ],
  [ 'set returning function', 'SELECT sum(s) FROM set_returning() s', 5050 ],
  [ 'INSERT RETURNING', 'INSERT INTO n VALUES (1000) RETURNING i', 1000, 'DELETE FROM n WHERE i = 1000' ],
  [ 'modifying CTE', 'WITH d AS (INSERT INTO n VALUES (1000) RETURNING i) SELECT i FROM d', 1000, 'DELETE FROM n WHERE i = 1000' ],
  [ 'EXECUTE', 'EXECUTE p', 100 ], [ 'EXECUTE of an INSERT RETURNING', 'EXECUTE pi (1000)', 1000, 'DELETE FROM n WHERE i = 1000' ],
  [ 'CREATE TABLE AS EXECUTE', 'CREATE TABLE made AS EXECUTE p; SELECT count FROM made', 100, 'DROP TABLE made' ],
  [ 'DECLARE CURSOR', 'BEGIN; DECLARE c CURSOR FOR SELECT i FROM n ORDER BY i; FETCH c; COMMIT', 1 ],
  [ 'held cursor', 'DECLARE h CURSOR WITH HOLD FOR SELECT count(*) FROM n; FETCH h', 100, 'CLOSE h' ],
  [ 'COPY of a query', 'COPY (SELECT count(*) FROM n) TO STDOUT', undef ], [ 'COPY of a table', 'COPY n TO STDOUT', undef ],
  [ 'EXPLAIN ANALYZE', 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT 1', 'Result (actual rows=1 loops=1)' ],
  [ 'EXPLAIN ANALYZE EXECUTE', 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) EXECUTE p', 'Aggregate (actual rows=1 loops=1)' ],
  [ 'CREATE TABLE AS', 'CREATE TABLE made AS SELECT count(*) FROM n; SELECT count FROM made', 100, 'DROP TABLE made' ],
  [ 'SELECT INTO', 'SELECT count(*) INTO made FROM n; SELECT count FROM made', 100, 'DROP TABLE made' ],
  [ 'REFRESH MATERIALIZED VIEW', 'REFRESH MATERIALIZED VIEW m; SELECT count FROM m', 100 ],
  [ 'DO', 'DO $$ BEGIN PERFORM count(*) FROM n; END $$', undef ],
  [ 'DO with a statement in a statement', q{DO $$ BEGIN EXECUTE 'DO ''BEGIN PERFORM looping(); END'''; END $$}, undef ],
  [ 'trigger', 'INSERT INTO audited VALUES (1); SELECT count(*) FROM audit', 1, 'TRUNCATE audit' ],
  [ 'foreign key', 'INSERT INTO child VALUES (1) RETURNING i', 1, 'DELETE FROM child' ],
  [ 'index by an expression', 'CREATE INDEX late ON parent ((i + at_planning_pl())); SELECT count(*) FROM n', 100, 'DROP INDEX late' ],
  [ 'view', 'CREATE VIEW w AS SELECT looping() l; SELECT l FROM w', 5050, 'DROP VIEW w' ],
  [ 'VALUES with a function', 'VALUES (looping())', 5050 ],
  [ 'default of a column', 'CREATE TABLE made (i int, c bigint DEFAULT looping()); INSERT INTO made VALUES (1) RETURNING c', 5050, 'DROP TABLE made' ],
  [ 'CHECK at ALTER TABLE', 'ALTER TABLE n ADD CONSTRAINT c CHECK (i < looping()); SELECT count(*) FROM n', 100, 'ALTER TABLE n DROP CONSTRAINT c' ],
);

sub counters { return $server->rows('SELECT waited, granted FROM sluice.classes')->[0]; }

sub check {
  my ($name, $messages, $right, $after) = @_;
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  my $before = counters();
  $session->send_raw($messages);
  my $queued = wait_until(sub { $session->readable || $server->waiters == 1 }, "$name queues") && !$session->readable;
  ok($queued, "$name: queues") or diag(Sluice::Wire::describe($session->finish->{error}));
  $holder->run('COMMIT');
  my $answer = $session->finish;
  is($answer->{error}, undef, "$name: succeeds") or diag(Sluice::Wire::describe($answer->{error}));
  my $value = $answer->{types} =~ /V/ ? 'call' : $answer->{rows}[0] ? $answer->{rows}[0][0] : undef;
  $value =~ s/(actual rows=\d+)\.00/$1/ if defined $value;  # 18 shows fractions
  is($value, $right, "$name: the right answer");
  is(counters()->[0] - $before->[0], 1, "$name: waits once");
  is($server->holders + $server->waiters, 0, "$name: nothing is held afterwards");
  $session->run($after) if $after;
  return;
}

subtest 'nested statements queue once, by the simple protocol' => sub {
  check($_->[0], $simple->($_->[1]), $_->[2], $_->[3]) for @nested;
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'nested statements queue once, by the extended protocol' => sub {
  for my $case (grep { $_->[1] !~ /;/ } @nested) {
    check($case->[0], Sluice::Wire::extended_messages($case->[1]) . Sluice::Wire::sync_message(), $case->[2], $case->[3]);
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'a call by the function call message queues once' => sub {
  for my $call ([ 'count_up(int)', 3 ], [ 'at_planning()' ], [ 'looping()' ], [ 'catching()' ]) {
    my ($function, @argument) = @$call;
    my $oid = $server->value("SELECT '$function'::regprocedure::oid");
    check("function call of $function", Sluice::Wire::function_call_message($oid, @argument), 'call');
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'a procedure that commits and rolls back waits once and keeps its permit to the end' => sub {
  check('CALL', $simple->('CALL committing()'), undef);
  check('DO that commits', $simple->('DO $$ BEGIN PERFORM looping(); COMMIT; PERFORM looping(); ROLLBACK; PERFORM looping(); END $$'), undef);
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'a nested statement that is cancelled or refused while queued leaves nothing' => sub {
  for my $case (@nested) {
    my ($name, $sql, undef, $after) = @$case;
    $holder->run('BEGIN');
    $holder->run('SELECT 1');
    $session->send_query("$sql");
    my $queued = $server->wait_waiters(1);
    $session->cancel;
    my $answer = $session->finish;
    is($answer->{error} ? $answer->{error}{code} : 'no error', '57014', "$name: cancelled while queued");
    is($server->holders . $server->waiters, '10', "$name: leaves the holder alone and nobody queued");
    $holder->run('COMMIT');
    $session->query('ROLLBACK') if $session->status ne 'I';
    $session->query($_) for split /; /, 'DEALLOCATE ALL; PREPARE p AS SELECT count(*) FROM n; PREPARE pi (int) AS INSERT INTO n VALUES ($1) RETURNING i';
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

$server->server_log_is_clean('nothing crashed');
done_testing();
