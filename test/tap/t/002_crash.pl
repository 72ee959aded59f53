# A backend killed by SIGKILL: the server restarts, and the ledger starts from zero under a new epoch
# (cases A6, F17; requirements A8, A19).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils ();
use Sluice;
use Test::More;
use Time::HiRes qw(time);

my $server = Sluice->start('crash', roles => ['app'], conf => { max_connections => 30, restart_after_crash => 'on' });
my $generation = $server->apply({ serverSessionPermits => 4, classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });

# Waits until the server that crashed lets the way in log in again.
sub wait_for_recovery {
  my ($old_admin_pid) = @_;
  $server->forget_admin;
  return wait_until(sub { eval { $server->admin->value('SELECT 1') } }, 'server back');
}

my $epoch = $server->status('epoch');
for my $victim ('holder', 'waiter', 'idle') {
  my %session = map { $_ => $server->connect('app') } qw(holder waiter idle fourth);
  is($server->try_connect('app')->error->{code}, '53300', "$victim: the session permits are used up");
  $session{holder}->run('BEGIN');
  $session{holder}->run('SELECT 1');
  $session{waiter}->send_query('SELECT 2');
  ok($server->wait_waiters(1), "$victim: one holds the permit, one waits");
  kill 'KILL', $session{$victim}->pid;
  # Everybody loses the connection: PostgreSQL restarts after a crash.
  my $end = $session{waiter}->finish;
  ok($end->{closed}, "$victim: the crash ends every session");
  ok(wait_for_recovery(), "case F17: the server is back after kill -9 of the $victim");
  $server->close_all;
  ok(wait_until(sub { ($server->status('guard_pid') // 0) > 0 && ($server->status('publisher_pid') // 0) > 0 }, 'workers run'), "case F17: both workers run ($victim)");
  ok(wait_until(sub { ($server->status('generation') // 0) == $generation && $server->status('mode') eq 'enforce' }, 'policy in force'),
    "case F17: the same policy generation is enforced ($victim)");
  cmp_ok($server->status('epoch'), '>', $epoch, "case F17: a new epoch has begun ($victim)");
  $epoch = $server->status('epoch');
  my @again = map { $server->try_connect('app') } 1 .. 4;
  is(scalar(grep { $_->logged_in } @again), 4, "case A6: all logins within the limit are accepted after the crash ($victim)");
  is($server->try_connect('app')->error->{code}, '53300', "case A6: and the limit holds ($victim)");
  is($again[0]->value('SELECT 7'), 7, "case A6: the execution permit is free ($victim)");
  $server->ledger_is_zero("case F17: the ledger is zero after the crash of the $victim");
}

# A worker killed by SIGKILL is a crash like any other.
for my $worker (qw(guard publisher)) {
  my $session = $server->connect('app');
  my $pid = $server->status("${worker}_pid");
  kill 'KILL', $pid;
  ok($session->finish->{closed}, "the $worker is killed: the crash ends every session");
  ok(wait_for_recovery(), "the server is back after kill -9 of the $worker");
  $server->close_all;
  my $now;
  ok(wait_until(sub { $now = $server->status("${worker}_pid") // 0; $now > 0 && $now != $pid }, "$worker back"), "the $worker is back after kill -9");
  ok(wait_until(sub { ($server->status('generation') // 0) == $generation && $server->status('mode') eq 'enforce' }, 'policy in force'),
    "the policy is enforced after kill -9 of the $worker");
  $server->ledger_is_zero("the ledger is zero after kill -9 of the $worker");
}

# Several crashes while logins and transactions go on.
for my $round (1 .. 2) {
  my @session = map { $server->try_connect('app') } 1 .. 4;
  $_->send_query('SELECT pg_sleep(0.2)') for grep { $_->logged_in } @session;
  kill 'KILL', $session[0]->pid;
  eval { $_->finish } for @session;
  ok(wait_for_recovery(), "case A6: the server is back from crash round $round");
  $server->close_all;
}
wait_until(sub { ($server->status('generation') // 0) == $generation }, 'policy in force');
$server->ledger_is_zero('case A6: the ledger is zero after repeated crashes');
my @panic = grep { /PANIC|signal 11|signal 6|pg_sluice: broken invariant/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($server->node->logfile);
is("@panic", '', 'case F17: no crash but ours');
done_testing();
