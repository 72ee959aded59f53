# A permit is held exactly while its backend really runs, and every way of dying gives it back (cases F1, F14; requirement A8).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils ();
use Sluice;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('death', roles => [qw(app)], conf => { max_connections => 30, authentication_timeout => 600 });
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });

subtest 'case F1: a client killed during its statement' => sub {
  for my $check_interval (0, 200) {
    my $label = "client_connection_check_interval=$check_interval";
    # The statement runs for as long as somebody else keeps the lock that it wants.
    my $keeper = $server->connect(Sluice->superuser);
    $keeper->run('SELECT pg_advisory_lock(1)');
    my $psql = fork;
    if (!$psql) {
      open STDOUT, '>', '/dev/null';
      open STDERR, '>', '/dev/null';
      exec 'psql', '-X', '-h', $server->socket_dir, '-p', $server->port, '-U', 'app', '-d', 'postgres',
        '-c', "SET client_connection_check_interval = $check_interval", '-c', 'SELECT pg_advisory_lock(1)';
    }
    my $pid;
    ok(wait_until(sub { $pid = $server->value(q{SELECT pid FROM pg_stat_activity WHERE usename = 'app' AND query LIKE '%advisory%' AND wait_event_type = 'Lock'}) }, 'psql waits'),
      "$label: psql runs its statement");
    my $newcomer = $server->connect('app');
    $newcomer->send_query('SELECT 1');
    ok($server->wait_waiters(1), "$label: a newcomer queues");
    kill 'KILL', $psql;
    waitpid $psql, 0;
    if ($check_interval == 0) {
      ok(!$newcomer->readable(1), "$label: the statement goes on, and the newcomer waits on");
      is($server->holders, 1, "$label: the permit is held");
      $keeper->run('SELECT pg_advisory_unlock(1)');
    }
    is($newcomer->finish->{error}, undef, "$label: the newcomer is granted");
    # The permit is back when the transaction has ended, a moment before the backend reports that it is idle.
    is($server->value("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND wait_event_type = 'Lock'"), 0, "$label: after the statement had really ended");
    $keeper->close;
    $server->ledger_is_zero("$label: the ledger is zero");
  }
};

subtest 'case F1: a client that vanishes while it is queued leaves the queue' => sub {
  my $holder = $server->connect('app');
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  for my $how (qw(drop reset)) {
    my @gone = map { $server->connect('app', tcp => 1) } 1 .. 3;
    $_->send_query('SELECT 1') for @gone;
    ok($server->wait_waiters(3), "$how: three clients wait");
    $_->$how for @gone;
    ok(wait_until(sub { $server->waiters == 0 }, 'queue empties'), "$how: the queue is empty long before their deadline");
    ok($server->wait_sessions(1), "$how: and their sessions are gone");
  }
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F14: terminate while holding, while queued, during login' => sub {
  my $started = $server->value('SELECT pg_postmaster_start_time()');
  my $holder = $server->connect('app');
  my $waiter = $server->connect('app');
  $holder->run('CREATE TEMP TABLE mine (i int)');
  $holder->run('BEGIN');
  $holder->run('INSERT INTO mine VALUES (1)');
  $waiter->send_query('SELECT 1');
  ok($server->wait_waiters(1), 'one holds, one waits');
  $server->run('SELECT pg_terminate_backend(' . $waiter->pid . ')');
  my $answer = $waiter->finish;
  is($answer->{error}{code}, '57P01', 'terminated while queued: 57P01');
  ok($answer->{closed}, 'and the connection is closed');
  ok($server->wait_waiters(0), 'it left the queue');
  $waiter = $server->connect('app');
  $waiter->send_query('SELECT 2');
  ok($server->wait_waiters(1), 'another one waits');
  $server->run('SELECT pg_terminate_backend(' . $holder->pid . ')');
  is($holder->query('SELECT 1')->{error}{code}, '57P01', 'terminated while holding: 57P01');
  is($waiter->finish->{rows}[0][0], 2, 'its permit went to the waiter');
  $waiter->close;

  # post_auth_delay is a superuser's setting. It is long enough for any machine: the signal ends it at once.
  $server->run(q{CREATE ROLE slow SUPERUSER LOGIN});
  for my $round (1 .. 3) {
    my $login = $server->open_socket(tcp => 1);
    $login->startup('slow', 'postgres', { post_auth_delay => 30 });
    my $pid;
    ok(wait_until(sub { $pid = $server->value(q{SELECT pid FROM sluice.sessions WHERE role = 'slow'}) }, 'session record of the login'), 'a login in progress has its session record');
    $server->run("SELECT pg_terminate_backend($pid)") if $pid;
    # The signal may be looked at only after the greeting was finished: then ReadyForQuery comes before the end.
    my $end = $login->finish;
    $end = $login->finish unless $end->{closed};
    is($end->{error}{code}, '57P01', 'terminated during login');
    ok($end->{closed}, 'and the connection is closed');
    ok(wait_until(sub { !$server->value(q{SELECT count(*) FROM sluice.sessions WHERE role = 'slow'}) }, 'record gone'), 'its session permit is back');
  }
  # The same for a client that hangs up during login.
  my $login = $server->open_socket(tcp => 1);
  $login->startup('slow', 'postgres', { post_auth_delay => 1 });
  $login->reset;
  ok(wait_until(sub { !$server->value(q{SELECT count(*) FROM sluice.sessions WHERE role = 'slow'}) }, 'record gone'), 'a client that hangs up during login leaves nothing');
  is($server->value('SELECT pg_postmaster_start_time()'), $started, 'the server was never restarted');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('cases F1, F14: nothing crashed');
done_testing();
