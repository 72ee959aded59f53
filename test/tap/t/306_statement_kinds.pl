# Which statements take a permit and which never wait; and that each kind leaves the ledger at zero, also when it fails
# (cases F13, F26). The table in docs/statements.md says the same in words.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time);

my $server = Sluice->start(
  'kinds', roles => [qw(app dba)],
  conf => { max_connections => 40, max_prepared_transactions => 5 });
$server->run('GRANT CREATE ON SCHEMA public TO app; GRANT pg_checkpoint TO app');
$server->run('CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 100); ALTER TABLE t OWNER TO app');
$server->apply({ adminRoles => { dba => {} }, classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });

my $setup = $server->connect('app');
$setup->run($_) for 'CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t',
  'CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT count(*)::int FROM t $$',
  'CREATE PROCEDURE p() LANGUAGE sql AS $$ INSERT INTO t VALUES (1) $$', 'CREATE SEQUENCE s';
$setup->close;

my $holder = $server->connect('app');
sub fill { $holder->run('BEGIN'); $holder->run('SELECT 1'); return; }
sub free { $holder->run('COMMIT'); return; }

# The statements that queue. Each entry: name, statements before (outside any permit question), the statement, and a form of it
# that fails while it runs.
my @admitted = (
  [ 'SELECT', [], 'SELECT count(*) FROM t', 'SELECT 1/(i - i) FROM t' ],
  [ 'SELECT without a table', [], 'SELECT 1', 'SELECT 1/g FROM generate_series(0, 0) g' ],
  [ 'VALUES', [], 'VALUES (1)', 'VALUES (1/(random() * 0)::int)' ],
  [ 'INSERT', [], 'INSERT INTO t VALUES (1)', 'INSERT INTO t SELECT 1/(i - i) FROM t' ],
  [ 'UPDATE', [], 'UPDATE t SET i = i WHERE i = 1', 'UPDATE t SET i = 1/(i - i)' ],
  [ 'DELETE', [], 'DELETE FROM t WHERE i = 5', 'DELETE FROM t WHERE 1/(i - i) = 1' ],
  [ 'MERGE', [], 'MERGE INTO t USING (SELECT 2 AS i) x ON t.i = x.i WHEN MATCHED THEN UPDATE SET i = 2',
    'MERGE INTO t USING (SELECT 2 AS i) x ON t.i = x.i WHEN MATCHED THEN UPDATE SET i = 1/(t.i - t.i)' ],
  [ 'SELECT FOR UPDATE', [], 'SELECT i FROM t WHERE i = 1 FOR UPDATE', 'SELECT 1/(i - i) FROM t FOR UPDATE' ],
  [ 'COPY TO STDOUT', [], 'COPY t TO STDOUT', 'COPY (SELECT 1/(i - i) FROM t) TO STDOUT' ],
  [ 'COPY FROM STDIN', [], 'COPY t FROM STDIN', 'COPY t FROM STDIN', 'fails by itself' ],
  [ 'CREATE TABLE', ['DROP TABLE IF EXISTS made'], 'CREATE TABLE made (i int)', 'CREATE TABLE t (i int)' ],
  [ 'CREATE TABLE AS', ['DROP TABLE IF EXISTS made'], 'CREATE TABLE made AS SELECT * FROM t', 'CREATE TABLE made2 AS SELECT 1/(i - i) FROM t' ],
  [ 'CREATE INDEX', ['DROP INDEX IF EXISTS made_index'], 'CREATE INDEX made_index ON t (i)', 'CREATE INDEX ON t ((1/(i - i)))' ],
  [ 'CREATE INDEX CONCURRENTLY', ['DROP INDEX IF EXISTS made_index'], 'CREATE INDEX CONCURRENTLY made_index ON t (i)', 'CREATE INDEX CONCURRENTLY broken ON t ((1/(i - i)))' ],
  [ 'VACUUM', ['DROP INDEX IF EXISTS broken'], 'VACUUM t', 'VACUUM no_such_table' ],
  [ 'ANALYZE', [], 'ANALYZE t', 'ANALYZE no_such_table' ],
  [ 'CLUSTER', ['CREATE INDEX IF NOT EXISTS t_i ON t (i)'], 'CLUSTER t USING t_i', 'CLUSTER t USING no_such_index' ],
  [ 'REINDEX', ['CREATE INDEX IF NOT EXISTS t_i ON t (i)'], 'REINDEX TABLE t', 'REINDEX TABLE no_such_table' ],
  [ 'REFRESH', [], 'REFRESH MATERIALIZED VIEW m', 'REFRESH MATERIALIZED VIEW t' ],
  [ 'CALL', [], 'CALL p()', 'CALL no_such_procedure()' ],
  [ 'DO', [], 'DO $$ BEGIN PERFORM count(*) FROM t; END $$', 'DO $$ BEGIN PERFORM 1/0; END $$' ],
  [ 'EXECUTE', [ 'DEALLOCATE ALL', 'PREPARE q AS SELECT count(*) FROM t' ], 'EXECUTE q', 'EXECUTE no_such_statement' ],
  [ 'EXPLAIN ANALYZE', [], 'EXPLAIN ANALYZE SELECT count(*) FROM t', 'EXPLAIN ANALYZE SELECT 1/(i - i) FROM t' ],
  [ 'ALTER TABLE', [], 'ALTER TABLE t ADD COLUMN IF NOT EXISTS j int', 'ALTER TABLE t DROP COLUMN no_such_column' ],
  [ 'TRUNCATE', ['CREATE TABLE IF NOT EXISTS spare (i int)'], 'TRUNCATE spare', 'TRUNCATE no_such_table' ],
  [ 'DROP', ['CREATE TABLE IF NOT EXISTS spare (i int)'], 'DROP TABLE spare', 'DROP TABLE no_such_table' ],
  [ 'LOCK in a transaction', ['BEGIN'], 'LOCK TABLE t IN ACCESS SHARE MODE', 'LOCK TABLE no_such_table', 'ROLLBACK' ],
  [ 'DECLARE and its query', ['BEGIN'], 'DECLARE c CURSOR FOR SELECT i FROM t', 'DECLARE c CURSOR FOR SELECT no_such_column FROM t', 'ROLLBACK' ],
  [ 'two statements in one Query', [], 'SELECT 1; SELECT 2', 'SELECT 1; SELECT 1/g FROM generate_series(0, 0) g' ],
  [ 'GRANT', [], 'GRANT SELECT ON t TO dba', 'GRANT SELECT ON t TO no_such_role' ],
  [ 'COMMENT', [], q{COMMENT ON TABLE t IS 'a table'}, q{COMMENT ON TABLE no_such_table IS ''} ],
);

# The statements that never wait: they end, open or describe, and none of them is work of the class.
my @exempt = (
  [ 'empty query', [], '' ],
  [ 'a comment alone', [], '-- nothing' ],
  [ 'SHOW', [], 'SHOW work_mem', 'SHOW no_such_setting' ],
  [ 'SHOW ALL', [], 'SHOW ALL' ],
  [ 'SET', [], q{SET application_name = 'x'}, q{SET no_such_setting = 1} ],
  [ 'RESET', [], 'RESET application_name', 'RESET no_such_setting' ],
  [ 'SET ROLE', [], 'SET ROLE app', 'SET ROLE no_such_role' ],
  [ 'BEGIN', [], 'BEGIN', undef, 'ROLLBACK' ],
  [ 'START TRANSACTION', [], 'START TRANSACTION ISOLATION LEVEL SERIALIZABLE', undef, 'ROLLBACK' ],
  [ 'COMMIT', ['BEGIN'], 'COMMIT' ],
  [ 'ROLLBACK', ['BEGIN'], 'ROLLBACK' ],
  [ 'COMMIT without a transaction', [], 'COMMIT' ],
  [ 'SAVEPOINT', ['BEGIN'], 'SAVEPOINT s', undef, 'ROLLBACK' ],
  [ 'ROLLBACK TO', [ 'BEGIN', 'SAVEPOINT s' ], 'ROLLBACK TO s', 'ROLLBACK TO no_such_savepoint', 'ROLLBACK' ],
  [ 'RELEASE', [ 'BEGIN', 'SAVEPOINT s' ], 'RELEASE s', undef, 'ROLLBACK' ],
  [ 'SET TRANSACTION', ['BEGIN'], 'SET TRANSACTION READ ONLY', undef, 'ROLLBACK' ],
  [ 'SET LOCAL', ['BEGIN'], 'SET LOCAL work_mem = 1000', undef, 'ROLLBACK' ],
  [ 'PREPARE', ['DEALLOCATE ALL'], 'PREPARE q AS SELECT count(*) FROM t', 'PREPARE q2 AS SELECT no_such_column FROM t' ],
  [ 'DEALLOCATE', [], 'DEALLOCATE ALL', 'DEALLOCATE no_such_statement' ],
  [ 'DISCARD', [], 'DISCARD PLANS' ],
  [ 'DISCARD ALL', [], 'DISCARD ALL' ],
  [ 'LISTEN', [], 'LISTEN channel' ],
  [ 'UNLISTEN', [], 'UNLISTEN channel' ],
  [ 'NOTIFY', [], 'NOTIFY channel' ],
  [ 'CLOSE', [], 'CLOSE ALL', 'CLOSE no_such_cursor' ],
  [ 'CHECKPOINT', [], 'CHECKPOINT' ],
  [ 'EXPLAIN', [], 'EXPLAIN SELECT count(*) FROM t', 'EXPLAIN SELECT no_such_column FROM t' ],
  [ 'ROLLBACK PREPARED', [], undef, q{ROLLBACK PREPARED 'no such transaction'} ],
);

my $session = $server->connect('app');

subtest 'case F26: the kinds that take a permit wait for it' => sub {
  for my $kind (@admitted) {
    my ($name, $before, $works, $fails, $after) = @$kind;
    $after = undef if ($after // '') eq 'fails by itself';
    for my $variant ([ 'works', $works ], [ 'fails', $fails ]) {
      my ($label, $sql) = @$variant;
      $session->run($_) for @$before;
      fill();
      $session->send_query($sql);
      my $queued = wait_until(sub { $session->readable || $server->waiters == 1 }, "$name queues") && !$session->readable;
      free();
      my $answer = $session->finish;
      # What fails before it starts to run (an unknown table in parse analysis) may be told so without a permit.
      my $early = $label eq 'fails' && $answer->{error} && $answer->{error}{code} =~ /^(42|26)/;
      ok($queued || $early, "$name ($label): queues while the class is full");
      if ($label eq 'works' && $name ne 'COPY FROM STDIN') {
        is($answer->{error}, undef, "$name: succeeds when granted") or diag(Sluice::Wire::describe($answer->{error}));
      } elsif ($label eq 'fails') {
        unlike($answer->{error} ? $answer->{error}{code} : 'none', qr/^(none|53000)$/, "$name: fails of its own");
      }
      $session->query($after) if $after;
      is($server->holders, 0, "$name ($label): gives its permit back");
    }
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'case F26: the kinds that never wait' => sub {
  for my $kind (@exempt) {
    my ($name, $before, $works, $fails, $after) = @$kind;
    for my $variant ([ 'works', $works ], [ 'fails', $fails ]) {
      my ($label, $sql) = @$variant;
      next unless defined $sql;
      $session->run($_) for @$before;
      fill();
      my $admitted = $server->admitted;
      my $answer = eval { $session->query($sql) };
      ok($answer, "$name ($label): is answered while the class is full") or diag($@);
      my $code = $answer && $answer->{error} ? $answer->{error}{code} : '';
      $label eq 'works' ? is($code, '', "$name: succeeds") : unlike($code, qr/^(|53000|57014)$/, "$name: fails of its own");
      is($server->admitted, $admitted, "$name ($label): takes no permit");
      free();
      if (!$answer) { $session->finish; }
      $session->query($after) if $after;
      is($server->holders, 0, "$name ($label): the ledger is zero");
    }
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'case F26: the same through the extended protocol' => sub {
  for my $sql ('SELECT count(*) FROM t', 'INSERT INTO t VALUES (1)', 'VACUUM t', 'CALL p()', 'COPY t TO STDOUT', 'CREATE TABLE extended (i int)') {
    fill();
    $session->send_raw(Sluice::Wire::extended_messages($sql) . Sluice::Wire::sync_message());
    ok($server->wait_waiters(1), "$sql: queues");
    free();
    is($session->finish->{error}, undef, "$sql: succeeds when granted");
    is($server->holders, 0, "$sql: gives its permit back");
  }
  for my $sql ('SHOW work_mem', q{SET application_name = 'x'}, 'BEGIN', 'ROLLBACK', '', 'EXPLAIN SELECT 1') {
    fill();
    my $answer = eval { $session->send_raw(Sluice::Wire::extended_messages($sql) . Sluice::Wire::sync_message()); $session->finish };
    ok($answer && !$answer->{error}, "'$sql': never waits");
    free();
  }
  # A fastpath call has no statement at all.
  my $oid = $server->value(q{SELECT 'pg_catalog.int4pl(int, int)'::regprocedure::oid});
  fill();
  $session->send_raw(Sluice::Wire::function_call_message($oid, 2, 3));
  ok($server->wait_waiters(1), 'a fastpath function call queues');
  free();
  is($session->finish->{error}, undef, 'and succeeds when granted');
  $session->send_raw(Sluice::Wire::function_call_message(4_000_000_000, 2));
  isnt($session->finish->{error}, undef, 'a fastpath call that fails');
  is($server->holders, 0, 'gives its permit back');
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'case F13: a full class blocks neither transaction ends nor administrators, and nobody lifts it for himself' => sub {
  my ($inside, $user, $dba) = ($server->connect('app'), $server->connect('app'), $server->connect('dba'));
  # `inside` is in a failed transaction, `holder` in a live one: both must be able to end.
  fill();
  $inside->run('BEGIN');
  is($inside->code('SHOW work_mem'), '', 'SHOW inside a transaction');
  is($inside->query('SELEC')->{error}{code}, '42601', 'a syntax error needs no permit');
  is($inside->code('ROLLBACK'), '', 'ROLLBACK of the failed transaction');
  cmp_ok($dba->value('SELECT count(*) FROM pg_stat_activity'), '>', 0, 'an administrator reads pg_stat_activity');
  cmp_ok($dba->value('SELECT count(*) FROM pg_class'), '>', 0, 'and the catalogue');
  is($server->holders, 1, 'and takes none of the class\'s permits');
  $user->send_query('SELECT count(*) FROM pg_stat_activity');
  ok($server->wait_waiters(1), 'the same query of an ordinary user queues');
  $user->cancel;
  is($user->finish->{error}{code}, '57014', 'and can be cancelled');
  is($user->code(q{SET pg_sluice.enforcement = 'off'}), '55P02', 'an ordinary user cannot switch enforcement off in the session');
  is($user->code(q{ALTER SYSTEM SET pg_sluice.enforcement = 'off'}), '42501', 'nor in the file');
  my $sneaky = $server->try_connect('app', params => { 'pg_sluice.enforcement' => 'off' });
  ok(!$sneaky->logged_in, 'nor at login') or diag($sneaky->value('SHOW pg_sluice.enforcement'));
  $sneaky = $server->try_connect('app', params => { options => '-c pg_sluice.enforcement=off' });
  ok(!$sneaky->logged_in, 'nor through options');
  free();
  for my $call (q{sluice.publish('{}'::jsonb)}, q{sluice.activate(1, 'shadow')}) {
    my $code = $user->code("SELECT * FROM $call");
    is($code, '42501', "an ordinary user may not call $call");
  }
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('cases F13, F26: nothing crashed');
done_testing();
