# A reader queued while rows move into a new partition, or into a table's first child: it counts every row once, or is told to
# try again. The plan is older than the wait, so the wait must not give it a newer snapshot than the plan can answer.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('growing', roles => ['app'], conf => { max_connections => 30 });
$server->run('GRANT CREATE ON SCHEMA public TO app');
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });
my ($holder, $reader) = map { $server->connect('app') } 1 .. 2;

sub fill { $holder->run('BEGIN'); $holder->run('SELECT 1'); return; }
sub free { $holder->run('COMMIT'); return; }

# 1000 rows in the one partition t_a.
sub make_partitioned {
  $server->run(q{DROP TABLE IF EXISTS t CASCADE; DROP TABLE IF EXISTS copied;
    CREATE TABLE t (id int, k text) PARTITION BY LIST (k); CREATE TABLE t_a PARTITION OF t FOR VALUES IN ('a');
    INSERT INTO t SELECT g, 'a' FROM generate_series(1, 1000) g; GRANT ALL ON t, t_a TO app});
  return;
}

sub attach_partition {
  $server->run(q{BEGIN; CREATE TABLE t_b (id int, k text);
    WITH moved AS (DELETE FROM t_a WHERE id > 500 RETURNING id) INSERT INTO t_b SELECT id, 'b' FROM moved;
    ALTER TABLE t ATTACH PARTITION t_b FOR VALUES IN ('b'); COMMIT});
  return;
}

# 1000 rows in a table without children.
sub make_plain {
  $server->run(q{DROP TABLE IF EXISTS t CASCADE; DROP TABLE IF EXISTS t_child, copied;
    CREATE TABLE t (id int, k text); INSERT INTO t SELECT g, 'a' FROM generate_series(1, 1000) g;
    CREATE TABLE t_child (id int, k text); GRANT ALL ON t, t_child TO app});
  return;
}

sub inherit_rows {
  $server->run(q{BEGIN; WITH moved AS (DELETE FROM t WHERE id > 500 RETURNING id) INSERT INTO t_child SELECT id, 'b' FROM moved;
    ALTER TABLE t_child INHERIT t; COMMIT});
  return;
}

# A table that is a parent already.
sub make_parent {
  make_plain();
  $server->run('CREATE TABLE t_first () INHERITS (t); GRANT ALL ON t_first TO app');
  return;
}

my $count = 'SELECT count(*), sum(id) FROM t';
my $right = '1000 500500';

# name, statements before, the messages that queue, and what reads the counted rows out of the answer.
my $first_row = sub { my ($answer) = @_; return join ' ', map { $_ // 'null' } @{ $answer->{rows}[0] // [] }; };
my @reader = (
  [ 'simple query', [], Sluice::Wire::query_message($count), $first_row ],
  [ 'extended protocol', [], Sluice::Wire::extended_messages($count) . Sluice::Wire::sync_message(), $first_row ],
  [ 'pruned by its condition', [], Sluice::Wire::query_message("$count WHERE k IN ('a', 'b')"), $first_row ],
  [ 'prepared statement', [ 'DEALLOCATE ALL', "PREPARE p AS $count", 'EXECUTE p' ], Sluice::Wire::query_message('EXECUTE p'), $first_row ],
  [ 'generic plan', [ 'DEALLOCATE ALL', 'SET plan_cache_mode = force_generic_plan', "PREPARE p AS $count", 'EXECUTE p' ],
    Sluice::Wire::query_message('EXECUTE p'), $first_row ],
  [ 'view', ["CREATE OR REPLACE VIEW v AS SELECT id FROM t"], Sluice::Wire::query_message('SELECT count(*), sum(id) FROM v'), $first_row ],
  [ 'join', [], Sluice::Wire::query_message('SELECT count(*), sum(t.id) FROM t JOIN (VALUES (1)) v (i) ON true'), $first_row ],
  [ 'subquery', [], Sluice::Wire::query_message('SELECT c, s FROM (SELECT count(*) c, sum(id) s FROM t OFFSET 0) q'), $first_row ],
  [ 'common table expression', [], Sluice::Wire::query_message("WITH q AS MATERIALIZED (SELECT id FROM t) SELECT count(*), sum(id) FROM q"), $first_row ],
  [ 'set operation', [], Sluice::Wire::query_message('SELECT count(*), sum(id) FROM (SELECT id FROM t UNION ALL SELECT id FROM t WHERE false) q'), $first_row ],
  [ 'scalar subqueries', [], Sluice::Wire::query_message('SELECT (SELECT count(*) FROM t), (SELECT sum(id) FROM t)'), $first_row ],
  [ 'function', [q{CREATE OR REPLACE FUNCTION f(OUT c bigint, OUT s bigint) LANGUAGE plpgsql AS 'BEGIN SELECT count(*), sum(id) INTO c, s FROM t; END'}, 'SELECT f()'],
    Sluice::Wire::query_message('SELECT c, s FROM f()'), $first_row ],
  [ 'create table as', [], Sluice::Wire::query_message("CREATE TABLE copied AS $count; SELECT * FROM copied"), $first_row ],
  [ 'insert from select', ['CREATE TABLE copied (c bigint, s bigint)'], Sluice::Wire::query_message("INSERT INTO copied $count; SELECT * FROM copied"), $first_row ],
  [ 'insert returning', ['CREATE TABLE copied (c bigint, s bigint)'], Sluice::Wire::query_message("INSERT INTO copied $count RETURNING *"), $first_row ],
  [ 'cursor', [], Sluice::Wire::query_message("BEGIN; DECLARE c CURSOR FOR $count; FETCH 1 FROM c; COMMIT"), $first_row ],
  [ 'explain analyze', [], Sluice::Wire::query_message('EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT id FROM t OFFSET 0'),
    sub { my ($answer) = @_; my ($rows) = ($answer->{rows}[0][0] // '') =~ /actual rows=(\d+)/; return ($rows // '') eq '1000' ? $right : $rows // ''; } ],
);

# Both must be one of the allowed ends, and the right one must happen where the snapshot is kept.
sub check_reader {
  my ($reader_case, $make, $move, $name) = @_;
  my ($label, $before, $messages, $value) = @$reader_case;
  $make->();
  $reader->query($_) for 'ROLLBACK', 'RESET ALL', 'DROP VIEW IF EXISTS v', @$before;
  fill();
  $reader->send_raw($messages);
  my $queued = $server->wait_waiters(1);
  $move->();
  free();
  my $answer = $reader->finish;
  $reader->query('ROLLBACK') if $reader->status ne 'I';
  my $result = $answer->{error} ? $answer->{error}{code} : $value->($answer);
  ok($queued && $result =~ /^($right|40001)$/, "$name, $label: every row once") or diag("queued: $queued, result: $result");
  return $result;
}

subtest 'rows move into a partition that is attached while a reader is queued' => sub {
  my @result = map { check_reader($_, \&make_partitioned, \&attach_partition, 'ATTACH PARTITION') } @reader;
  is(scalar(grep { $_ ne $right } @result), 0, 'no reader of a partitioned table has to try again');
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'rows move into a further child of an inheritance parent while a reader is queued' => sub {
  my @result = map { check_reader($_, \&make_parent, \&inherit_rows, 'INHERIT') } @reader;
  is(scalar(grep { $_ ne $right } @result), 0, 'no reader of an inheritance parent has to try again');
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'rows move into the first child of a plain table while a reader is queued' => sub {
  my @result = map { check_reader($_, \&make_plain, \&inherit_rows, 'first child') } @reader;
  cmp_ok(scalar(grep { $_ eq $right } @result), '>', 0, 'some count right; the others are told to try again');
  diag(scalar(grep { $_ eq '40001' } @result) . ' of ' . @result . ' were told to try again');
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

$server->server_log_is_clean('nothing crashed');
done_testing();
