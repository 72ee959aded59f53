# Transaction time limits: by time held whatever the state; cancel, then terminate; never beyond the transaction they are for, and
# never once the commit has begun: a synchronous standby that is down keeps a commit waiting, unacknowledged (requirements A12,
# A19; case B15). SLUICE_ROUNDS sets the number of commits on which the limit expires (1,000 for a release).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time sleep);

my $rounds = $ENV{SLUICE_ROUNDS} // 120;
my $limit_ms = 400;

my $server = Sluice->start('limits', roles => [qw(app free)], streaming => 1, conf => { max_connections => 60, log_min_messages => "'log'" });
$server->run('CREATE TABLE t (id int); GRANT ALL ON t TO app, free');
sub policy {
  my ($limit) = @_;
  return {
    serverSessionPermits => 44, assign => [{ role => 'free', class => 'unlimited' }], defaultClass => 'limited',
    classes => { limited => { permits => 40, transactionTimeLimitMs => $limit }, unlimited => { permits => 4 } } };
}
$server->apply(policy($limit_ms));

sub is_ended {
  my ($answer, $code, $name) = @_;
  local $Test::Builder::Level = $Test::Builder::Level + 1;
  my $error = $answer->{error};
  is($error ? $error->{code} : '', $code, $name) or diag(Sluice::Wire::describe($error));
  like($error ? $error->{context} // '' : '', qr/transactionTimeLimitMs/, "$name: and CONTEXT says why");
  return;
}

subtest 'time limits: a running statement is cancelled, the session lives on' => sub {
  my $app = $server->connect('app');
  my ($cancels, $started) = ($server->status('time_limit_cancels'), time);
  is_ended($app->query('SELECT pg_sleep(20)', 10), '57014', 'the statement is cancelled');
  cmp_ok(time - $started, '<', $limit_ms / 1000 + 10, 'soon after the limit');
  is($app->value('SELECT 1'), 1, 'the session goes on');
  is($server->status('time_limit_cancels') - $cancels, 1, 'counted once');
  $app->run('BEGIN');
  $app->run('SELECT 1');
  sleep $limit_ms / 1000 / 2;
  is_ended($app->query('SELECT pg_sleep(20)', 10), '57014', 'the clock is the transaction\'s, not the statement\'s');
  $app->run('ROLLBACK');
  is($app->code("SELECT pg_sleep(0.2)"), '', 'shorter ones are left alone');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: idle in transaction ends by termination' => sub {
  my $app = $server->connect('app');
  $app->run('BEGIN');
  $app->run('INSERT INTO t VALUES (0)');
  my $started = time;
  my ($message) = $app->receive_until('E', 10);
  my $took = time - $started;
  is(Sluice::Wire::fields_of($message->{body})->{code}, '57P01', 'the session is terminated');
  cmp_ok($took, '>', $limit_ms / 1000 + 0.7, 'a second after the cancel that could do nothing');
  cmp_ok($took, '<', $limit_ms / 1000 + 10, 'and not much later');
  cmp_ok($server->status('time_limit_terminates'), '>', 0, 'counted');
  is($server->value('SELECT count(*) FROM t'), 0, 'nothing was committed');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: who swallows the cancel is terminated' => sub {
  my $app = $server->connect('app');
  my $answer = $app->query(q{DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(5); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$}, 15);
  is($answer->{error}{code}, '57P01', 'terminated');
  ok($answer->{closed}, 'the connection is closed');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: an unsynced pipeline is limited as well' => sub {
  my $app = $server->connect('app');
  $app->send_raw(Sluice::Wire::extended_messages('SELECT 1') . Sluice::Wire::flush_message());
  my ($message) = $app->receive_until('E', 10);
  is(Sluice::Wire::fields_of($message->{body})->{code}, '57P01', 'the session is terminated');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: other classes, the shadow and the switch are left alone' => sub {
  my ($free, $app) = ($server->connect('free'), $server->connect('app'));
  $free->send_query('SELECT pg_sleep(2)');
  is($free->finish->{error}, undef, 'a class without a limit');
  $server->set_and_hup('pg_sluice.enforcement' => "'shadow'");
  ok(wait_until(sub { $app->value('SHOW pg_sluice.enforcement') eq 'shadow' }, 'shadow'), 'in shadow');
  is($app->code('SELECT pg_sleep(2)'), '', 'nothing is cancelled');
  $server->set_and_hup('pg_sluice.enforcement' => "'policy'");
  ok(wait_until(sub { $app->value('SHOW pg_sluice.enforcement') eq 'policy' && $server->status('enforcement') eq 'policy' }, 'policy'), 'back at policy');
  is($app->code('SELECT pg_sleep(2)'), '57014', 'the limit is back');
  $server->ledger_is_zero('the ledger is zero');
};

# Each round ends within a few milliseconds of the limit, and the next transaction follows in the same packet.
subtest 'time limits: no signal outlives its transaction' => sub {
  my ($hit, $spilled) = (0, 0);
  my @app = map { $server->connect('app') } 1 .. 10;
  my $round = 0;
  while ($round < $rounds) {
    for my $app (@app) {
      my $sleep = ($limit_ms + (($round++ * 7) % 240) - 60) / 1000;
      $app->send_raw(join '', map { Sluice::Wire::query_message($_) } "SELECT pg_sleep($sleep)", 'SELECT 1', 'BEGIN', 'SELECT 2', 'COMMIT');
    }
    for my $app (@app) {
      my @answer = map { $app->finish(20) } 1 .. 5;
      $hit++ if $answer[0]{error};
      $spilled += grep { $_->{error} || $_->{closed} } @answer[ 1 .. 4 ];
    }
  }
  is($spilled, 0, "$round transactions near their limit: no later one was hit");
  cmp_ok($hit, '>', 0, "while $hit of them met the limit");
  cmp_ok($hit, '<', $round, 'and others were just in time');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: a commit that waits for a synchronous standby is never signalled' => sub {
  my $node = $server->node;
  $node->backup('base');
  my $standby = PostgreSQL::Test::Cluster->new('standby');
  $standby->init_from_backup($node, 'base', has_streaming => 1);
  $standby->append_conf('postgresql.conf', "primary_conninfo = '" . $node->connstr . " application_name=standby'\n");
  $standby->start;
  $server->run(q{ALTER SYSTEM SET synchronous_standby_names = 'standby'});
  $server->run('SELECT pg_reload_conf()');
  ok(wait_until(sub { ($server->value(q{SELECT sync_state FROM pg_stat_replication}) // '') eq 'sync' }, 'sync'), 'the standby is synchronous');
  $standby->stop('fast');

  my $app = $server->connect('app');
  $app->send_query('INSERT INTO t VALUES (1)');
  ok(!$app->readable(4), 'ten times the limit later the commit still waits, unacknowledged');
  is($server->value("SELECT state || ' ' || committing FROM sluice.tickets WHERE pid = " . $app->pid), 'IN_TRANSACTION true', 'the ledger shows it as committing');
  $standby->start;
  is($app->finish(30)->{tags}[0], 'INSERT 0 1', 'acknowledged as soon as the standby has it');

  my ($cancelled, $waiting, $acknowledged, $lost, $done) = (0, 0, 0, 0, 0);
  my @app = map { $server->connect('app') } 1 .. 30;
  while ($done < $rounds) {
    $standby->stop('fast');
    $server->run(q{SET synchronous_commit = local; TRUNCATE t});
    my $id = 0;
    for my $session (@app) {
      my $sleep = ($limit_ms + (($done++ * 7) % 200) - 60) / 1000;
      $session->{id} = ++$id;
      $session->send_query("BEGIN; INSERT INTO t VALUES ($id); SELECT pg_sleep($sleep); COMMIT");
    }
    sleep $limit_ms / 1000 + 1.5;
    my @open;
    for my $session (@app) {
      if (!$session->readable(0)) { $waiting++; push @open, $session; next; }
      # A block that failed says so and stays open; anything else was an acknowledgement that no standby backs.
      my $answer = $session->finish(10);
      if ($answer->{error} && $answer->{error}{code} eq '57014') { $cancelled++; $session->run('ROLLBACK'); }
      else { $acknowledged++; diag(Sluice::Wire::describe($answer->{error})); }
    }
    $standby->start;
    for my $session (@open) { $lost++ if $session->finish(30)->{error}; }
    is($server->value('SELECT count(*) FROM t'), scalar @open, 'what is acknowledged and what is stored agree');
  }
  is($acknowledged, 0, "$done commits near the limit with the standby down: none is acknowledged");
  is($lost, 0, 'none that had begun is ended');
  cmp_ok($cancelled, '>', 0, "$cancelled met the limit before their commit");
  cmp_ok($waiting, '>', 0, "$waiting waited for the standby");
  $standby->stop;
  $server->run('ALTER SYSTEM RESET synchronous_standby_names');
  $server->run('SELECT pg_reload_conf()');
  unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/canceling the wait for synchronous replication/, 'no wait for the standby was cut short');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('time limits: nothing crashed');
done_testing();
