# Case B12: maintenance work does not compete with user queries for one pool. It has a small class of its own with a guarantee, and
# where it shares a class with them, ageing lets it come round all the same (requirements A14, A15, P1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('maintenance', roles => [qw(app janitor)], conf => { max_connections => 50 });
my @to_maintenance = (assign => [ { role => 'janitor', class => 'maintenance' } ], defaultClass => 'interactive');
my $AGAIN = join '', map { Sluice::Wire::query_message($_) } 'COMMIT', 'BEGIN', 'SELECT 1';

subtest 'case B12: the guarantee of a small class holds while users queue' => sub {
  $server->apply({ classes => { interactive => { permits => 3, queueDeadlineMs => 600000 }, maintenance => { permits => 1 } }, @to_maintenance });
  my @user = map { queue_up($server->connect('app')) } 1 .. 12;
  ok($server->wait_waiters(9, 'interactive'), 'three users run, nine wait');
  my $janitor = $server->connect('janitor');
  $janitor->run('SELECT 1') for 1 .. 20;
  is($server->value(q{SELECT waited FROM sluice.classes WHERE class = 'maintenance'}), 0, 'of 20 maintenance tasks none waited');
  is($janitor->code('ANALYZE'), '', 'nor does ANALYZE, which is admitted like any statement');
  is($server->holders('interactive'), 3, 'and users have what is theirs');
  drain(@user);
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B12: what users borrowed is repaid to maintenance before any user goes on' => sub {
  $server->apply({ classes => { interactive => { permits => 3, queueDeadlineMs => 600000, borrow => { from => ['maintenance'], max => 1, ttlMs => 400 } },
        maintenance => { permits => 1, queueDeadlineMs => 600000 } }, @to_maintenance }, over_limit => 'drain');
  my @user = map { queue_up($server->connect('app')) } 1 .. 12;
  ok($server->wait_holders(4, 'interactive'), 'users run on their three permits and on the idle one of maintenance');
  my @running = map { granted(@user) } 1 .. 4;
  my %runs = map { $_ => 1 } @running;
  my @waiting = grep { !$runs{$_} } @user;
  my $janitor = queue_up($server->connect('janitor'));
  ok($server->wait_waiters(1, 'maintenance'), 'a maintenance task waits for the permit that was lent');
  end(shift @running);
  my $next = granted($janitor, @waiting);
  is($next, $janitor, 'the first release of a user lets it run, with eight users waiting since before it came');
  is($server->holders('interactive'), 3, 'users have their three permits');
  # While the task runs its class has nothing to lend.
  for my $number (1 .. 3) {
    end(shift @running);
    my $user = granted(@waiting);
    @waiting = grep { $_ != $user } @waiting;
    push @running, $user;
    is($server->holders('interactive'), 3, "release $number of the users gives one user its turn");
  }
  end($janitor);
  end($_) for @running;
  drain(@waiting);
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B12: with cancel a user that does not end gives the borrowed permit back' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 600000, borrow => { from => ['maintenance'], max => 1, ttlMs => 300, onExpiry => 'cancel' } },
        maintenance => { permits => 1, queueDeadlineMs => 600000 } }, @to_maintenance }, over_limit => 'drain');
  my @user = map { $server->connect('app') } 1 .. 2;
  $_->send_query('SELECT pg_sleep(600)') for @user;
  ok($server->wait_holders(2, 'interactive'), 'two users run, one of them on a borrowed permit');
  my $janitor = queue_up($server->connect('janitor'));
  is(granted($janitor), $janitor, 'the maintenance task runs though neither of them ends');
  my @ended = grep { $_->readable(5) } @user;
  is(scalar @ended, 1, 'one of them was cancelled');
  is($ended[0]->finish->{error}{code}, '57014', 'by 57014');
  is($server->holders('interactive'), 1, 'the other one runs on');
  my ($left) = grep { $_ != $ended[0] } @user;
  $left->cancel;
  $left->finish;
  end($janitor);
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B12: in one class with users of a thousand times its weight it comes round' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 600000, agingMs => 100 } },
      tenants => { '*' => {}, app => { weight => 1000 }, janitor => { weight => 1 } } }, over_limit => 'drain');
  my @user = map { $server->connect('app') } 1 .. 4;
  my $janitor = $server->connect('janitor');
  # It has had its share and more: by weight alone the users would now be owed a thousand times as long.
  $janitor->run('BEGIN');
  $janitor->run('SELECT 1');
  for my $n (0 .. $#user) { queue_up($user[$n]); $server->wait_waiters($n + 1); }
  sleep 0.5;
  $janitor->send_raw($AGAIN);
  $janitor->finish for 1 .. 2;
  my ($served, $others, $until) = (0, 0, time + 120);
  while ($served < 3 && time < $until) {
    my $next = granted($janitor, @user) // last;
    if ($next == $janitor) { $served++; }
    else { $others++; }
    $next->send_raw($AGAIN);
    $next->finish for 1 .. 2;
  }
  is($served, 3, 'three tasks ran while the users came again and again');
  diag("three tasks among $others transactions of users");
  drain($janitor, @user);
  $server->ledger_is_zero('the ledger is zero');
};

is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('maintenance: nothing crashed');
done_testing();
