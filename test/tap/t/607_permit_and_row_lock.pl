# Case F11: waiting for a permit and waiting for a row lock must not form a circle that nobody sees. Permits belong to transactions,
# so whoever holds a row lock never queues again; what still closes a circle is broken by the overdraft or by the deadline.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('rows', roles => ['app'], conf => { max_connections => 40 });
$server->run('CREATE TABLE r (id int PRIMARY KEY, n int); INSERT INTO r SELECT i, 0 FROM generate_series(1, 5) i; GRANT ALL ON r TO app');

sub waits_for_lock {
  my ($wire) = @_;
  my $pid = $wire->pid;
  return wait_until(sub { $server->value("SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") > 0 }, "pid $pid waits for a lock");
}

subtest 'case F11: the holder of a row lock never queues again' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 600000 } } });
  my ($first, $second, @more) = map { $server->connect('app') } 1 .. 5;
  $first->run('BEGIN');
  $first->run('UPDATE r SET n = n + 1 WHERE id = 1');
  $second->run('BEGIN');
  $second->send_query('UPDATE r SET n = n + 1 WHERE id = 1');
  $_->send_query('SELECT 1') for @more;
  ok($server->wait_waiters(4), 'with one permit the second session queues, and three more behind it');
  for my $round (1 .. 20) { $first->run('UPDATE r SET n = n + 1 WHERE id = 1'); }
  is($server->holders, 1, '20 further statements of the first one run on the permit it has, between them it is idle');
  $first->run('COMMIT');
  is($second->finish->{error}, undef, 'the second one gets permit and row');
  $second->run('COMMIT');
  is(scalar(grep { $_->finish->{error} } @more), 0, 'and the others run');
  is($server->value('SELECT n FROM r WHERE id = 1'), 22, 'every update is there');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F11: with two permits the row decides, not the queue' => sub {
  $server->apply({ classes => { interactive => { permits => 2, queueDeadlineMs => 600000 } } });
  my ($first, $second, @more) = map { $server->connect('app') } 1 .. 4;
  $first->run('BEGIN');
  $first->run('UPDATE r SET n = 0 WHERE id = 2');
  $second->run('BEGIN');
  $second->send_query('UPDATE r SET n = n + 1 WHERE id = 2');
  ok(waits_for_lock($second), 'the second session has a permit and waits for the row');
  $_->send_query('SELECT 1') for @more;
  ok($server->wait_waiters(2), 'both permits are in use, two wait');
  $first->run('UPDATE r SET n = 10 WHERE id = 2');
  $first->run('COMMIT');
  is($second->finish->{error}, undef, 'the first one came to its end, and the second one has the row');
  $second->run('COMMIT');
  is(scalar(grep { $_->finish->{error} } @more), 0, 'then the others run');
  is($server->value('SELECT n FROM r WHERE id = 2'), 11, 'one after the other');
  $server->ledger_is_zero('the ledger is zero');
};

# A session lock outlives the transaction that took it. Its owner queues; whoever has the permit waits for the lock.
sub close_the_circle {
  my ($owner, $holder) = @_;
  $owner->run('SELECT pg_advisory_lock(11)');
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  $owner->send_query('SELECT pg_advisory_unlock(11)');
  $server->wait_waiters(1);
  $holder->send_query('SELECT pg_advisory_xact_lock(11)');
  return;
}

subtest 'case F11: a circle through a session lock is dissolved by the overdraft' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 600000 } }, overdraft => { max => 1 } });
  my ($owner, $holder) = map { $server->connect('app') } 1 .. 2;
  close_the_circle($owner, $holder);
  is($owner->finish->{error}, undef, 'the owner of the lock is let through');
  is($holder->finish->{error}, undef, 'and the holder of the permit has the lock');
  is($server->value(q{SELECT overdraft_granted FROM sluice.status}), 1, 'by one overdraft permit');
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

# The owner of the lock is refused for the reason that is given; the holder still waits for the lock, which is its own affair.
sub circle_is_broken {
  my ($reason, $rule, @idle) = @_;
  my ($owner, $holder) = map { $server->connect('app') } 1 .. 2;
  for my $wire (@idle) { $wire->run('BEGIN'); $wire->run('SELECT 1'); }
  close_the_circle($owner, $holder);
  my $error = $owner->finish->{error};
  is($error->{code}, '53000', 'the owner of the lock is refused');
  is_deeply([ @{ detail_of($error) }{qw(reason retry rule class tenant)} ], [ $reason, 'after', $rule, 'interactive', 'app' ], "by $rule")
    or diag(Sluice::Wire::describe($error));
  ok(!$holder->readable, 'the holder still waits for the lock');
  $owner->close;
  is($holder->finish->{error}, undef, 'when the owner goes away, it has the lock');
  $_->run('COMMIT') for $holder, @idle;
  $server->ledger_is_zero('the ledger is zero');
  return detail_of($error);
}

subtest 'case F11: without an overdraft a circle in which nothing moves is broken' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 600000 } }, overdraft => { max => 0 } });
  my $detail = circle_is_broken('overdraft_exhausted', 'overdraft.max');
  is("$detail->{used} $detail->{limit}", '0 0', 'with its numbers');
};

# Somebody who holds a permit and waits for no lock may end at any time: nobody is refused for the overdraft meanwhile.
subtest 'case F11: without an overdraft the deadline breaks it: no wait is unbounded' => sub {
  $server->apply({ classes => { interactive => { permits => 2, queueDeadlineMs => 2000 } }, overdraft => { max => 0 } });
  my $detail = circle_is_broken('queue_deadline', 'executionClasses.interactive.queueDeadlineMs', $server->connect('app'));
  is($detail->{limit}, 2000, 'the deadline');
  cmp_ok($detail->{used}, '>=', 2000, 'had passed');
};

is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('permits and row locks: nothing crashed');
done_testing();
