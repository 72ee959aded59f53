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
    classes => { limited => { permits => 40, transactionTimeLimitMs => $limit, mayEnter => ['unlimited'] }, unlimited => { permits => 40 } } };
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

# Runs the statements, of which the last is over the limit, until it is cancelled. A machine that gives the backend no turn for a
# second lets it be terminated instead; then it is tried again. Returns the answer, the session, and how often it was tried.
sub cancelled {
  my (@before) = @_;
  for my $attempt (1 .. 20) {
    my $app = $server->connect('app');
    my $answer;
    for my $sql (@before, 'SELECT pg_sleep(600)') { $answer = $app->query($sql); last if $answer->{error}; }
    return ($answer, $app, $attempt) if !$answer->{error} || $answer->{error}{code} ne '57P01';
  }
  return ({ error => { code => 'always terminated' } }, undef, 20);
}

subtest 'time limits: a running statement is cancelled, the session lives on' => sub {
  my ($cancels, $started) = ($server->status('time_limit_cancels'), time);
  my ($answer, $app, $attempts) = cancelled();
  is_ended($answer, '57014', 'the statement is cancelled');
  note(sprintf 'after %.2f s, attempt %d', time - $started, $attempts);
  is($app->value('SELECT 1'), 1, 'the session goes on');
  is($server->status('time_limit_cancels') - $cancels, $attempts, 'counted once each');
  ($answer, $app) = cancelled('BEGIN', 'SELECT pg_sleep(0.1)');
  is_ended($answer, '57014', 'a later statement of a transaction as well');
  $app->run('ROLLBACK');
  $server->ledger_is_zero('the ledger is zero');
  $server->apply(policy(600_000));
  is($server->connect('app')->code('SELECT pg_sleep(1)'), '', 'one that is within its limit is left alone');
  $server->apply(policy($limit_ms));
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: idle in transaction ends by termination' => sub {
  my $app = $server->connect('app');
  my $started = time;
  $app->send_query('BEGIN; INSERT INTO t VALUES (0)');
  my ($message) = $app->receive_until('E');
  my $took = time - $started;
  is(Sluice::Wire::fields_of($message->{body})->{code}, '57P01', 'the session is terminated');
  cmp_ok($took, '>=', $limit_ms / 1000 + 1, 'a second after the cancel that could do nothing');
  note(sprintf 'after %.2f s', $took);
  cmp_ok($server->status('time_limit_terminates'), '>', 0, 'counted');
  is($server->value('SELECT count(*) FROM t'), 0, 'nothing was committed');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: who swallows the cancel is terminated' => sub {
  my $app = $server->connect('app');
  my $answer = $app->query(q{DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(5); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$});
  is($answer->{error}{code}, '57P01', 'terminated');
  ok($answer->{closed}, 'the connection is closed');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: an unsynced pipeline is limited as well' => sub {
  my $app = $server->connect('app');
  $app->send_raw(Sluice::Wire::extended_messages('SELECT 1') . Sluice::Wire::flush_message());
  my ($message) = $app->receive_until('E');
  is(Sluice::Wire::fields_of($message->{body})->{code}, '57P01', 'the session is terminated');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'time limits: other classes, the shadow and the switch are left alone' => sub {
  my ($free, $app) = ($server->connect('free'), $server->connect('app'));
  $free->send_query('SELECT pg_sleep(2)');
  is($free->finish->{error}, undef, 'a class without a limit');
  $server->set_and_hup('pg_sluice.enforcement' => "'shadow'");
  ok(wait_until(sub { $app->value('SHOW pg_sluice.enforcement') eq 'shadow' && $server->status('enforcement') eq 'shadow' }, 'shadow'), 'in shadow');
  is($app->code('SELECT pg_sleep(2)'), '', 'nothing is cancelled');
  $server->set_and_hup('pg_sluice.enforcement' => "'policy'");
  ok(wait_until(sub { $app->value('SHOW pg_sluice.enforcement') eq 'policy' && $server->status('enforcement') eq 'policy' }, 'policy'), 'back at policy');
  like($app->code('SELECT pg_sleep(600)'), qr/^57(014|P01)$/, 'the limit is back');
  $server->ledger_is_zero('the ledger is zero');
};

# Each round ends within a few milliseconds of the limit, and the next transactions follow in the same packet. They are of a class
# without a limit, so that whatever hits one of them was not meant for it.
subtest 'time limits: no signal outlives its transaction' => sub {
  my ($hit, $spilled) = (0, 0);
  my @app = map { $server->connect('app') } 1 .. 10;
  my $round = 0;
  my $until = time + 300;
  while ($round < $rounds || ($hit == 0 || $hit == $round) && time < $until) {
    for my $app (@app) {
      my $sleep = ($limit_ms + (($round++ * 7) % 240) - 60) / 1000;
      $app->send_raw(join '', map { Sluice::Wire::query_message($_) }
        "SELECT pg_sleep($sleep)", q{SET pg_sluice.class = 'unlimited'}, 'SELECT 1', 'BEGIN', 'SELECT 2', 'COMMIT', 'RESET pg_sluice.class');
    }
    for my $app (@app) {
      my ($first, @later) = map { $app->finish } 1 .. 7;
      $hit++ if $first->{error};
      # A backend that had no turn for a second after the cancel is terminated, in its first transaction.
      if ($first->{closed}) { $app = $server->connect('app'); next; }
      $spilled += grep { $_->{error} || $_->{closed} } @later;
    }
  }
  is($spilled, 0, "$round transactions near their limit: no later one was hit");
  cmp_ok($hit, '>', 0, "while $hit of them met the limit");
  cmp_ok($hit, '<', $round, 'and others were just in time');
  $server->ledger_is_zero('the ledger is zero');
};

sub is_committing {
  my ($session) = @_;
  return ($server->value('SELECT committing FROM sluice.tickets WHERE pid = ' . $session->pid) // '') eq 't';
}

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
  ok(wait_until(sub { is_committing($app) }, 'the commit'), 'a commit has begun');
  ok(!$app->readable(4), 'ten times the limit later the commit still waits, unacknowledged');
  is($server->value("SELECT state || ' ' || committing FROM sluice.tickets WHERE pid = " . $app->pid), 'IN_TRANSACTION true', 'the ledger shows it as committing');
  $standby->start;
  is($app->finish->{tags}[0], 'INSERT 0 1', 'acknowledged as soon as the standby has it');

  my ($cancelled, $waiting, $acknowledged, $lost, $done) = (0, 0, 0, 0, 0);
  my @app = map { $server->connect('app') } 1 .. 30;
  my $until = time + 600;
  while ($done < $rounds || ($cancelled == 0 || $waiting == 0) && time < $until) {
    $standby->stop('fast');
    $server->run(q{SET synchronous_commit = local; TRUNCATE t});
    my $id = 0;
    for my $session (@app) {
      my $sleep = ($limit_ms + (($done++ * 7) % 200) - 60) / 1000;
      $session->{id} = ++$id;
      $session->send_query("BEGIN; INSERT INTO t VALUES ($id); SELECT pg_sleep($sleep); COMMIT");
    }
    # Each of them is decided: it has its answer, or it waits for the standby.
    wait_until(sub { !grep { !$_->readable(0) && !is_committing($_) } @app }, 'every one answered or committing');
    sleep 1.5;
    my @open;
    for my $session (@app) {
      if (!$session->readable(0)) { $waiting++; push @open, $session; next; }
      # A block that failed says so and stays open; anything else was an acknowledgement that no standby backs.
      my $answer = $session->finish;
      my $code = $answer->{error} ? $answer->{error}{code} : '';
      if ($code eq '57014') { $cancelled++; $session->run('ROLLBACK'); }
      elsif ($code eq '57P01') { $cancelled++; $session = $server->connect('app'); }
      else { $acknowledged++; diag(Sluice::Wire::describe($answer->{error})); }
    }
    $standby->start;
    for my $session (@open) { $lost++ if $session->finish->{error}; }
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
