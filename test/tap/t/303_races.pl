# A grant races with cancel, terminate and timeouts: exactly one outcome, nothing lost, nothing doubled
# (cases F5, F7, F8, F10; requirements A3, A8, A12, A19).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time sleep usleep);

my $server = Sluice->start('races', roles => ['app'], conf => { max_connections => 30, deadlock_timeout => "'10ms'" });
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });

my $balance = 'SELECT (SELECT sum(in_use + queued) FROM sluice.classes), (SELECT count(*) FROM sluice.reconcile())';

# Zero holders, zero waiters, zero discrepancies; a release may still be on its way for a moment.
sub balanced {
  my $row;
  return wait_until(sub { $row = $server->rows($balance)->[0]; $row->[0] == 0 && $row->[1] == 0 }, 'the ledger balances');
}

sub hold {
  my ($holder) = @_;
  $holder->send_raw(Sluice::Wire::query_message('BEGIN') . Sluice::Wire::query_message('SELECT 1'));
  $holder->finish;
  my $answer = $holder->finish;
  die 'the holder got no permit: ' . Sluice::Wire::describe($answer->{error}) if $answer->{error};
  return;
}

subtest 'case F5: terminate of a waiter races with a release, 500 rounds' => sub {
  my ($holder, %outcome) = ($server->connect('app'));
  my $unbalanced = 0;
  for my $round (1 .. 500) {
    my $waiter = $server->connect('app');
    hold($holder);
    $waiter->send_query('SELECT 2');
    $server->wait_waiters(1) or last;
    if ($round % 2) { $holder->send_query('COMMIT'); usleep(int rand 300); }
    $server->admin->send_query('SELECT pg_terminate_backend(' . $waiter->pid . ')');
    if (!($round % 2)) { usleep(int rand 300); $holder->send_query('COMMIT'); }
    $server->admin->finish;
    $holder->finish;
    my $answer = $waiter->finish;
    my $code = $answer->{error} ? $answer->{error}{code} : 'granted';
    $outcome{$code}++;
    $waiter->drop;
    $unbalanced++ unless balanced();
    last if $unbalanced > 2;
  }
  diag(join ', ', map { "$_: $outcome{$_}" } sort keys %outcome);
  is($unbalanced, 0, 'the ledger is zero after each round');
  is(($outcome{granted} // 0) + ($outcome{'57P01'} // 0), 500, 'each waiter was granted or terminated, nothing else');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F7: cancel of a waiter races with a release, 1000 rounds' => sub {
  my ($holder, $waiter) = map { $server->connect('app') } 1 .. 2;
  my ($unbalanced, $stuck, %outcome) = (0, 0);
  for my $round (1 .. 1000) {
    hold($holder);
    $waiter->send_query('SELECT 2');
    $server->wait_waiters(1) or last;
    $holder->send_query('COMMIT') if $round % 2;
    usleep(int rand 200);
    $server->admin->send_query('SELECT pg_cancel_backend(' . $waiter->pid . ')');
    usleep(int rand 200);
    $holder->send_query('COMMIT') unless $round % 2;
    $holder->finish;
    $server->admin->finish;
    my $answer = $waiter->finish;
    $outcome{ $answer->{error} ? $answer->{error}{code} : 'granted' }++;
    # The session goes on at once: a cancelled waiter holds nothing and gets no second grant. A late cancel may hit this statement.
    my @later = map { $waiter->query($_) } 'BEGIN', 'SELECT 3', 'COMMIT';
    $stuck++ if grep { $_->{error} && $_->{error}{code} !~ /^(57014|25P02)$/ } @later;
    my $row = $server->rows($balance)->[0];
    $unbalanced++ unless $row->[0] == 0 && $row->[1] == 0 or balanced();
    last if $unbalanced > 2 || $stuck > 2;
  }
  diag(join ', ', map { "$_: $outcome{$_}" } sort keys %outcome);
  is(($outcome{granted} // 0) + ($outcome{57014} // 0), 1000, 'each waiter was cancelled or granted, exactly one of the two');
  is($stuck, 0, 'the session could begin again at once');
  is($unbalanced, 0, 'conservation holds after each round');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F8: queued, cancelled, queued again in the same session' => sub {
  my ($holder, $waiter) = map { $server->connect('app') } 1 .. 2;
  hold($holder);
  for my $round (1 .. 3) {
    for my $shape ('', 'BEGIN', 'BEGIN; SAVEPOINT s') {
      $waiter->run($_) for split /; /, $shape;
      $waiter->send_query('SELECT 1');
      ok($server->wait_waiters(1), "round $round, '$shape': queued");
      $waiter->cancel;
      is($waiter->finish->{error}{code}, '57014', "round $round, '$shape': cancelled");
      ok($server->wait_waiters(0), "round $round, '$shape': the queue is empty");
      if ($shape =~ /SAVEPOINT/) {
        $waiter->run('ROLLBACK TO s');
        is($server->holders, 1, "round $round: no permit came out of the rolled back savepoint");
      }
      $waiter->run('ROLLBACK') if $shape;
    }
  }
  $holder->run('COMMIT');
  is($waiter->value('SELECT 7'), 7, 'and afterwards it runs');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F10: deadlock_timeout and statement_timeout fire while queued, 300 rounds' => sub {
  my ($holder, $waiter) = map { $server->connect('app') } 1 .. 2;
  hold($holder);
  $waiter->run('SET statement_timeout = 12');
  my %outcome;
  for my $round (1 .. 300) {
    my $answer = $waiter->query('SELECT 1');
    $outcome{ $answer->{error} ? $answer->{error}{code} : 'granted' }++;
  }
  diag(join ', ', map { "$_: $outcome{$_}" } sort keys %outcome);
  is(($outcome{57014} // 0) + ($outcome{53000} // 0), 300, 'only the timeout or an answer of the queue');
  is($server->waiters, 0, 'nobody is left in the queue');
  is($server->value(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'LWLock' AND usename = 'app'}), 0, 'no lightweight lock is held or awaited');
  $holder->run('COMMIT');
  $waiter->persist('SET statement_timeout = 0');
  is($waiter->value('SELECT 7'), 7, 'and afterwards it runs');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('cases F5 to F10: nothing crashed');
done_testing();
