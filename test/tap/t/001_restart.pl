# Policies survive restarts; each worker comes back when it is killed; a publisher without its database does no harm.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('restart', roles => ['app'], conf => { max_connections => 30 });
my $generation = $server->apply({ serverSessionPermits => 5, classes => { interactive => 2 } });

sub in_force {
  my ($wanted) = @_;
  return wait_until(sub { ($server->status('generation') // 0) == $wanted && $server->status('mode') eq 'enforce' }, "generation $wanted enforced");
}

subtest 'a published and activated policy survives restarts' => sub {
  for my $mode (qw(fast immediate smart)) {
    my $boot = $server->status('boot_id');
    my $epoch = $server->status('epoch');
    $server->restart($mode);
    ok(in_force($generation), "$mode: the same generation is enforced again");
    isnt($server->status('boot_id'), $boot, "$mode: under a new boot id");
    cmp_ok($server->status('epoch'), '>', $epoch, "$mode: and a new epoch");
    my @session = map { $server->try_connect('app') } 1 .. 6;
    is(scalar(grep { $_->logged_in } @session), 5, "$mode: its limit holds");
    $server->ledger_is_zero("$mode: the ledger is zero");
  }
};

subtest 'a generation that was only published stays in shadow over a restart' => sub {
  my $shadow = $server->document(serverSessionPermits => 1);
  $server->run(Sluice::publish_sql($shadow));
  $server->restart;
  ok(in_force($generation), 'the activated one decides');
  my @session = map { $server->connect('app') } 1 .. 3;
  is(scalar @session, 3, 'the published one refuses nobody');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'each worker comes back' => sub {
  for my $worker (qw(guard publisher)) {
    my $pid = $server->status("${worker}_pid");
    cmp_ok($pid, '>', 0, "$worker runs");
    kill 'TERM', $pid;
    my $now;
    ok(wait_until(sub { $now = $server->status("${worker}_pid") // 0; $now > 0 && $now != $pid }, "$worker back"), "$worker comes back after SIGTERM");
    cmp_ok($server->status("${worker}_starts"), '>=', 2, "$worker: the restart is counted");
    ok(in_force($generation), "$worker: the policy is in force");
    my $session = $server->connect('app');
    is($session->value('SELECT 1'), 1, "$worker: transactions run");
    $server->ledger_is_zero("$worker: the ledger is zero");
  }
};

subtest 'the absence of a worker is an alert' => sub {
  my $pid = $server->status('guard_pid');
  kill 'STOP', $pid;
  ok(wait_until(sub { $server->status(q{array_to_string(alerts, '; ')}) =~ /guard/ }, 'alert'), 'a guard that gives no sign is an alert');
  kill 'CONT', $pid;
  ok(wait_until(sub { $server->status(q{array_to_string(alerts, '; ')}) !~ /guard/ }, 'no alert'), 'which ends when it goes on');
};

subtest 'a publisher without its database' => sub {
  $server->set_and_hup('pg_sluice.database' => q{'not_there_yet'});
  $server->restart;
  my @session = map { $server->connect('app') } 1 .. 8;
  is(scalar(grep { $_->value('SELECT 1') == 1 } @session), 8, 'the server runs and admits everybody');
  is($server->status('generation'), undef, 'no policy is in force');
  ok(wait_until(sub { ($server->status(q{array_to_string(alerts, '; ')}) // '') =~ /publisher/ }, 'alert'), 'status alerts that the publisher is missing');
  is($server->admin->query(Sluice::publish_sql($server->document))->{error}{code}, '55000', 'publishing in another database is refused');
  $server->ledger_is_zero('the ledger is zero');
  $server->run('CREATE DATABASE not_there_yet');
  my $there = $server->connect(Sluice->superuser, database => 'not_there_yet');
  $there->run('CREATE EXTENSION pg_sluice');
  $there->run(Sluice::publish_sql($server->document(serverSessionPermits => 2)));
  $there->run(Sluice::activate_sql($server->{generation}));
  ok(in_force($server->{generation}), 'once the database is there policies are published and enforced');
  $there->close;
  ok(wait_until(sub { ($server->status('publisher_pid') // 0) > 0 }, 'publisher'), 'the publisher has come up by itself');
  @session = map { $server->try_connect('app') } 1 .. 3;
  is(scalar(grep { $_->logged_in } @session), 2, 'the new limit holds');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a publisher whose extension was dropped' => sub {
  my $there = $server->connect(Sluice->superuser, database => 'not_there_yet');
  $there->run('DROP EXTENSION pg_sluice');
  $there->close;
  $server->restart;
  my $session = $server->connect('app');
  is($session->value('SELECT 1'), 1, 'the server runs without the tables');
  is($server->status('generation'), undef, 'no policy is in force');
  $server->ledger_is_zero('the ledger is zero');
};

my @bad = grep { /PANIC|signal 11|signal 6|pg_sluice: broken invariant/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($server->node->logfile);
is("@bad", '', 'restart: nothing crashed');
done_testing();
