# Ends and beginnings of transactions that have no statement of their own to carry the permit: aborted blocks, chained commits, COPY,
# NOTIFY delivery, clean-up at exit, walsenders that run SQL (requirements A2, A7, A8).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils ();
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('edges', roles => [qw(app standby)], conf => { max_connections => 40 });
$server->run('ALTER ROLE standby REPLICATION');
$server->run('CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 1000); GRANT ALL ON t TO app, standby; GRANT CREATE ON SCHEMA public TO app');
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });

subtest 'an aborted transaction block holds no permit, a rolled back savepoint does' => sub {
  my ($session, $other) = map { $server->connect('app') } 1 .. 2;
  hold($session);
  is($session->code('SELECT 1/g FROM generate_series(0, 0) g'), '22012', 'a statement fails');
  is($session->status, 'E', 'the block is aborted');
  is($server->holders, 0, 'and holds nothing while the client thinks about it');
  is($other->value('SELECT 1'), 1, 'so that others run');
  is($session->code('SELECT 1'), '25P02', 'further statements are refused by PostgreSQL');
  is($server->holders, 0, 'and take nothing');
  $session->run('ROLLBACK');
  hold($session);
  $session->run('SAVEPOINT s');
  $session->query('SELECT 1/g FROM generate_series(0, 0) g');
  is($server->holders, 1, 'an error behind a savepoint keeps the transaction and its permit');
  $session->run('ROLLBACK TO s');
  is($session->value('SELECT 1'), 1, 'which goes on');
  $session->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'COMMIT AND CHAIN and ROLLBACK AND CHAIN give the permit back' => sub {
  my ($session, $waiter) = map { $server->connect('app') } 1 .. 2;
  for my $end (qw(COMMIT ROLLBACK)) {
    hold($session);
    $waiter->send_query('SELECT 2');
    ok($server->wait_waiters(1), "$end: another session waits");
    $session->run("$end AND CHAIN");
    is($session->status, 'T', "$end: the next transaction has begun");
    is($waiter->finish->{rows}[0][0], 2, "$end: and the other session got the permit");
    is($server->holders, 0, "$end: the new transaction has none yet");
    is($session->value('SELECT 3'), 3, "$end: its first statement takes one");
    is($server->holders, 1, "$end: for the rest of it");
    $session->run('ROLLBACK');
  }
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'COPY: a client that stalls holds its permit, one that leaves gives it back' => sub {
  my ($copy, $waiter) = map { $server->connect('app', tcp => 1) } 1 .. 2;
  $copy->send_query('COPY t FROM STDIN');
  my ($message) = $copy->receive_until('GE');
  is($message->{type}, 'G', 'COPY FROM STDIN runs');
  $waiter->send_query('SELECT 2');
  ok($server->wait_waiters(1), 'and holds the permit while the client sends nothing');
  $copy->send_raw(Sluice::Wire::message('d', "1\n2\n"));
  $copy->reset;
  is($waiter->finish->{rows}[0][0], 2, 'the client is gone: the permit goes to the waiter');
  $copy = $server->connect('app');
  $copy->send_query('COPY t FROM STDIN');
  $copy->receive_until('GE');
  $copy->send_raw(Sluice::Wire::message('d', "x\n") . Sluice::Wire::message('c', ''));
  is($copy->finish->{error}{code}, '22P02', 'a COPY that fails on its data');
  is($server->holders, 0, 'gives it back');
  $copy->send_query('COPY t FROM STDIN');
  $copy->receive_until('GE');
  $copy->cancel;
  $copy->send_raw(Sluice::Wire::message('d', "1\n") . Sluice::Wire::message('f', "enough\0"));
  is($copy->finish->{error}{code}, '57014', 'a COPY that is cancelled');
  is($server->holders, 0, 'gives it back');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'an early Sync during extended COPY leaves nothing behind' => sub {
  my $copy = $server->connect('app');
  $copy->send_raw(Sluice::Wire::parse_message('', 'COPY t FROM STDIN') . Sluice::Wire::bind_message('', '') . Sluice::Wire::execute_message('', 0)
      . Sluice::Wire::sync_message());
  my ($message, $types) = $copy->receive_until('GE');
  is($types, '12G', 'COPY by the extended protocol');
  is($server->holders, 1, 'holds the permit');
  $copy->send_raw(Sluice::Wire::message('d', "5\n") . Sluice::Wire::message('c', '') . Sluice::Wire::sync_message());
  my $answer = $copy->finish;
  is($answer->{types}, 'CZ', 'the reference answer: one ReadyForQuery');
  is($server->holders, 0, 'and the permit is back');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'NOTIFY reaches an idle listener while the class is full' => sub {
  my ($listener, $holder) = map { $server->connect('app') } 1 .. 2;
  $listener->run('LISTEN news');
  hold($holder);
  my $before = $server->admitted;
  $server->run(q{NOTIFY news, 'hello'});
  my $message = $listener->receive;
  is($message->{type}, 'A', 'the notification arrives');
  is($server->admitted, $before, 'without a permit');
  is($server->holders, 1, 'only the holder is counted');
  $holder->run('COMMIT');
  is($listener->value('SELECT 1'), 1, 'the listener goes on');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'clean-up at exit never queues' => sub {
  my $holder = $server->connect('app');
  my @leaving = map { $server->connect('app') } 1 .. 6;
  for my $session (@leaving) { $session->run("CREATE TEMP TABLE temp_$_ AS SELECT generate_series(1, 10) AS i") for 1 .. 3; }
  hold($holder);
  $_->close for @leaving[ 0 .. 2 ];
  $server->run('SELECT pg_terminate_backend(' . $_->pid . ')') for @leaving[ 3 .. 5 ];
  ok($server->wait_sessions(1), 'sessions with temporary tables leave while the class is full');
  is($server->waiters, 0, 'nobody is queued');
  is($server->value(q{SELECT count(*) FROM pg_class WHERE relname LIKE 'temp\_%'}), 0, 'and their tables are gone');
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a walsender that runs SQL takes execution permits, and only those' => sub {
  my $holder = hold($server->connect('app'));
  my $walsender = $server->try_connect('standby', params => { replication => 'database' });
  ok($walsender->logged_in, 'it logs in') or diag(Sluice::Wire::describe($walsender->error));
  is(scalar @{ $walsender->query('IDENTIFY_SYSTEM')->{rows} }, 1, 'replication commands are answered at once');
  is($server->status('sessions'), 1, 'it holds no session permit');
  $walsender->send_query('SELECT count(*) FROM t');
  ok($server->wait_waiters(1), 'its SQL queues like any other');
  $holder->run('COMMIT');
  is($walsender->finish->{error}, undef, 'and is granted');
  is($server->holders, 0, 'and gives its permit back');
  $walsender->send_query('SELECT pg_sleep(600)');
  ok($server->wait_holders(1), 'it holds a permit');
  $server->run('SELECT pg_terminate_backend(' . $walsender->pid . ')');
  ok($server->wait_holders(0), 'terminated, it holds none');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'client programs under a limit of one' => sub {
  $server->run('CREATE DATABASE bench OWNER app');
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });
  my @to = ('-h', $server->socket_dir, '-p', $server->port, '-U', 'app');
  my %run = (
    'pgbench -i' => [ 'pgbench', @to, '-i', '-q', '-s', '1', 'bench' ],
    'pgbench simple' => [ 'pgbench', @to, '-n', '-c', '8', '-j', '1', '-t', '20', 'bench' ],
    'pgbench prepared' => [ 'pgbench', @to, '-n', '-M', 'prepared', '-c', '8', '-j', '1', '-t', '20', 'bench' ],
    'pgbench -S extended' => [ 'pgbench', @to, '-n', '-S', '-M', 'extended', '-c', '8', '-j', '1', '-t', '20', 'bench' ],
    'vacuumdb -j' => [ 'vacuumdb', @to, '-j', '3', '-z', 'bench' ],
    'reindexdb -j' => [ 'reindexdb', @to, '-j', '2', '-S', 'public', 'bench' ],
    'pg_dump' => [ 'pg_dump', @to, '-f', '/dev/null', 'bench' ]);
  for my $name ('pgbench -i', sort grep { $_ ne 'pgbench -i' } keys %run) {
    my ($out, $err) = ('', '');
    my $ok = IPC::Run::run($run{$name}, '<', '/dev/null', '>', \$out, '2>', \$err, IPC::Run::timeout(600));
    ok($ok, "$name ends well") or diag($err);
    unlike($err, qr/ERROR|FATAL/, "$name meets no error");
  }
  is($server->status('over_limit_grants'), 0, 'no grant was over the limit');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('edges: nothing crashed');
done_testing();
