# Portals, procedures that commit, two-phase commit: the permit belongs to the transaction, whatever its shape
# (cases F6, F9, F12; requirements A2, A8).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('shapes', roles => ['app'], conf => { max_connections => 30, max_prepared_transactions => 4 });
$server->run('CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 100); GRANT ALL ON t TO app');
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });

subtest 'case F6: an open portal and a cancelled queued statement' => sub {
  my ($session, $holder) = map { $server->connect('app') } 1 .. 2;
  # The portal that outlives its transaction is a held cursor.
  $session->run('BEGIN');
  $session->run('DECLARE p CURSOR WITH HOLD FOR SELECT i FROM t ORDER BY i');
  $session->run('COMMIT');
  is($server->holders, 0, 'a held cursor keeps no permit after its transaction');
  is($session->value('FETCH 1 FROM p'), 1, 'it is read without one');
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  $session->send_query('SELECT 2');
  ok($server->wait_waiters(1), 'the second statement queues');
  $session->cancel;
  is($session->finish->{error}{code}, '57014', 'and is cancelled');
  is($session->value('FETCH 1 FROM p'), 2, 'the portal goes on');
  $session->run('CLOSE p');
  is($server->holders, 1, 'only the holder is counted');
  $holder->run('COMMIT');
  is($server->holders, 0, 'active returns to 0');

  # The portal inside an unfinished batch: its permit is the batch's, and comes back with Sync.
  $session->send_raw(Sluice::Wire::parse_message('', 'SELECT i FROM t ORDER BY i') . Sluice::Wire::bind_message('half', '')
      . Sluice::Wire::execute_message('half', 3) . Sluice::Wire::flush_message());
  my ($message, $types) = $session->receive_until('sC');
  is($types, '12DDDs', 'a portal read in part');
  ok($server->wait_holders(1), 'holds the one permit');
  $holder->send_query('SELECT 5');
  ok($server->wait_waiters(1), 'another session queues behind it');
  $session->send_raw(Sluice::Wire::parse_message('', 'SELECT 1') . Sluice::Wire::bind_message('', '') . Sluice::Wire::execute_message('', 0)
      . Sluice::Wire::flush_message());
  ($message, $types) = $session->receive_until('CE');
  is($types, '12DC', 'a second statement of the batch does not queue again');
  $session->send_raw(Sluice::Wire::close_message('P', 'half') . Sluice::Wire::sync_message());
  is($session->finish->{error}, undef, 'the batch ends');
  is($holder->finish->{rows}[0][0], 5, 'and the permit goes to the waiter');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F6: a pipeline is one transaction with one permit' => sub {
  my $session = $server->connect('app');
  my $before = $server->admitted;
  $session->send_raw(join('', map { Sluice::Wire::extended_messages("INSERT INTO t VALUES ($_)") } 1 .. 5) . Sluice::Wire::sync_message());
  my $answer = $session->finish;
  is(scalar @{ $answer->{tags} }, 5, 'five statements in one batch');
  $session->send_raw(Sluice::Wire::extended_messages('INSERT INTO t VALUES (1)') . Sluice::Wire::extended_messages('SELECT 1/i FROM (VALUES (0)) v(i)')
      . Sluice::Wire::extended_messages('INSERT INTO t VALUES (2)') . Sluice::Wire::sync_message());
  is($session->finish->{error}{code}, '22012', 'a batch that fails in its middle');
  is($server->admitted - $before, 2, 'each batch was admitted once');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F9: a procedure that commits in a loop' => sub {
  $server->run('CREATE TABLE log (who text, i int); GRANT ALL ON log TO app');
  $server->run('GRANT CREATE ON SCHEMA public TO app');
  my ($caller, $rival) = map { $server->connect('app') } 1 .. 2;
  $caller->run(<<'SQL');
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. 5 LOOP
    INSERT INTO log VALUES ('p', i);
    COMMIT;
    -- The first time round it stays here until the test lets it go on.
    PERFORM pg_advisory_xact_lock_shared(7);
  END LOOP;
END $$
SQL
  $server->run('SELECT pg_advisory_lock(7)');
  $caller->send_raw(Sluice::Wire::query_message('CALL p()') . Sluice::Wire::query_message('CALL p()'));
  ok($server->wait_holders(1), 'the first call runs');
  $rival->send_query(q{INSERT INTO log SELECT 'rival', count(*) FROM log});
  ok($server->wait_waiters(1), 'a rival waits');
  $server->run('SELECT pg_advisory_unlock(7)');
  my $first = $caller->finish;
  my $second = $caller->finish;
  is_deeply([ map { $_->{error} } $first, $second ], [ undef, undef ], 'both calls succeed') or diag(Sluice::Wire::describe($first->{error} // $second->{error}));
  is($rival->finish->{error}, undef, 'the rival is granted');
  is($caller->value(q{SELECT i FROM log WHERE who = 'rival'}), 5, 'after the whole first call and before the second');
  is($caller->value(q{SELECT count(*) FROM log WHERE who = 'p'}), 10, 'and nothing is lost');
  my $fails = $caller->query(q{DO $$ BEGIN INSERT INTO log VALUES ('do', 1); COMMIT; INSERT INTO log VALUES ('do', 2); ROLLBACK; PERFORM 1/0; END $$});
  is($fails->{error}{code}, '22012', 'a DO block that commits, rolls back and fails');
  is($server->holders, 0, 'holds nothing afterwards');
  is($rival->value('SELECT 1'), 1, 'and the permit is there for others');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F12: PREPARE TRANSACTION returns the permit, COMMIT PREPARED needs none' => sub {
  my ($first, $other, $third) = map { $server->connect('app') } 1 .. 3;
  $first->run('BEGIN');
  $first->run('INSERT INTO t VALUES (1000)');
  $other->send_query('SELECT count(*) FROM t WHERE i = 1000');
  ok($server->wait_waiters(1), 'another session waits for the permit');
  $first->run(q{PREPARE TRANSACTION 'x'});
  is($other->finish->{rows}[0][0], 0, 'and gets it at PREPARE TRANSACTION');
  $first->close;
  ok($server->wait_sessions(2), 'the preparing session leaves');
  $other->run('BEGIN');
  $other->run('SELECT 1');
  is($third->code(q{COMMIT PREPARED 'x'}), '', 'COMMIT PREPARED runs while the class is full');
  is($third->query(q{COMMIT PREPARED 'no such'})->{error}{code}, '42704', 'also when it fails');
  $other->run('COMMIT');
  is($other->value('SELECT count(*) FROM t WHERE i = 1000'), 1, 'the transaction is committed');
  $first = $server->connect('app');
  $first->run('BEGIN');
  $first->run('INSERT INTO t VALUES (1001)');
  $first->run('SAVEPOINT s');
  is($first->code('PREPARE TRANSACTION \'' . 'x' x 300 . '\''), '22023', 'a PREPARE TRANSACTION that fails in its middle');
  is($server->holders, 0, 'gives the permit back');
  $first->run('BEGIN');
  $first->run('CREATE TEMP TABLE tt (i int)');
  is($first->code(q{PREPARE TRANSACTION 'temp'}), '0A000', 'a PREPARE TRANSACTION that is refused late');
  is($server->holders, 0, 'gives it back as well');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('cases F6, F9, F12: nothing crashed');
done_testing();
