# Case B15: the queue deadline, the statement limit, the limit on idle transactions and the transaction limit are four clocks. None of
# them counts what is another one's (requirement A15).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('clocks', roles => ['app'], conf => { max_connections => 40 });

# Queues a first statement, leaves it there for so many seconds, then lets it run.
sub queued_for {
  my ($wire, $seconds, $sql) = @_;
  my $holder = hold($server->connect('app'));
  $wire->send_query($sql);
  $server->wait_waiters(1);
  sleep $seconds;
  $holder->run('COMMIT');
  return $wire->finish;
}

subtest 'case B15: idle time in a transaction counts towards no statement' => sub {
  $server->apply({ classes => { interactive => { permits => 4 } } });
  my $session = $server->connect('app');
  $session->run('SET statement_timeout = 2000');
  $session->run('BEGIN');
  sleep 3;
  is($session->code('SELECT 1'), '', 'the first statement three seconds after BEGIN, with a limit of two');
  sleep 3;
  is($session->code('SELECT 2'), '', 'and another one three seconds later, on the permit it has');
  $session->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B15: the queue deadline begins with the queue, not with BEGIN' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 5000 } } });
  my $session = $server->connect('app');
  $session->run('BEGIN');
  sleep 6;
  my $holder = hold($server->connect('app'));
  $session->send_query('SELECT 1');
  ok($server->wait_waiters(1), 'six seconds after BEGIN the first statement queues, with a deadline of five');
  my $left = $server->value(q{SELECT deadline_ms FROM sluice.tickets WHERE state = 'QUEUED'});
  cmp_ok($left, '>', 0, 'and has all of it before it');
  $holder->run('COMMIT');
  is($session->finish->{error}, undef, 'it runs as soon as the permit is free');
  $session->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B15: the transaction limit begins with the permit' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 60000, transactionTimeLimitMs => 2000 } } }, over_limit => 'drain');
  my $session = $server->connect('app');
  $session->run('BEGIN');
  sleep 2.5;
  is($session->code('SELECT 1'), '', 'idle for longer than the limit before its first statement: it holds no permit yet');
  $session->run('COMMIT');
  # Two holders, one after the other, keep it in the queue for longer than the limit.
  my @holder = map { $server->connect('app') } 1 .. 2;
  hold($holder[0]);
  $holder[1]->run('BEGIN');
  $holder[1]->send_query('SELECT 1');
  ok($server->wait_waiters(1), 'one waits');
  $session->send_query('SELECT 1');
  ok($server->wait_waiters(2), 'two wait');
  sleep 1.2;
  $holder[0]->query('COMMIT');
  $holder[1]->finish;
  sleep 1.2;
  $holder[1]->query('COMMIT');
  is($session->finish->{error}, undef, 'queued for longer than the limit: that time is not the transaction\'s');
  # And the limit does count the time that the permit is held, whatever the statements are.
  hold($session);
  ok(wait_until(sub { $server->holders == 0 }, 'the limit ends it'), 'held and idle, it is ended');
  isnt($session->query('SELECT 1')->{error}, undef, 'its next statement says so');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B15: waiting for a permit is not idling in a transaction' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 60000 } } }, over_limit => 'drain');
  my $session = $server->connect('app');
  $session->run('SET idle_in_transaction_session_timeout = 1500');
  $session->run('BEGIN');
  is(queued_for($session, 2.5, 'SELECT 1')->{error}, undef, 'queued for longer than the limit on idle transactions');
  ok(wait_until(sub { $session->readable }, 'the idle limit'), 'which then ends it while it is idle');
  is($session->finish->{error}{code}, '25P03', 'by its own SQLSTATE');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B15: a statement that waited still has the rest of its own limit' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 60000 } } }, over_limit => 'drain');
  my $session = $server->connect('app');
  $session->run('SET statement_timeout = 20000');
  $session->run('BEGIN');
  is(queued_for($session, 1, 'SELECT pg_sleep(0.5)')->{error}, undef, 'queue and execution together stay below it');
  $session->run(q{SET statement_timeout = 300});
  is($session->code('SELECT pg_sleep(30)'), '57014', 'a later statement has a limit of its own, and that is PostgreSQL\'s answer');
  $session->run('ROLLBACK');
  $server->ledger_is_zero('the ledger is zero');
};

is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('clocks: nothing crashed');
done_testing();
