# Case B11: ten permits, a hundred loops. Within a tenant the order is that of arrival, and whoever releases a permit and asks again
# at once is behind all who wait (requirement A15).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time);

my ($PERMITS, $LOOPS) = (10, 100);
my $server = Sluice->start('barging', roles => ['app'], conf => { max_connections => 130 });
my $AGAIN = join '', map { Sluice::Wire::query_message($_) } 'COMMIT', 'BEGIN', 'SELECT 1';

subtest 'case B11: the oldest waiter gets each released permit' => sub {
  $server->apply({ classes => { interactive => { permits => $PERMITS, queueDeadlineMs => 600000 } } });
  my @loop = map { $server->connect('app') } 1 .. $LOOPS;
  my @running = @loop[ 0 .. $PERMITS - 1 ];
  for my $wire (@running) { $wire->run('BEGIN'); $wire->run('SELECT 1'); }
  my @queue;
  for my $wire (@loop[ $PERMITS .. $LOOPS - 1 ]) {
    push @queue, queue_up($wire);
    $server->wait_waiters(scalar @queue);
  }
  my ($overtaken, $rounds) = (0, 2 * $LOOPS);
  for my $round (1 .. $rounds) {
    # COMMIT, and in the same breath the next transaction: nobody can be quicker to take what was just released.
    my $wire = shift @running;
    $wire->send_raw($AGAIN);
    $wire->finish for 1 .. 2;
    my $oldest = shift @queue;
    my @all = ($oldest, @queue, $wire);
    my $next;
    wait_until(sub { ($next) = grep { $_->readable } @all; defined $next }, 'somebody is granted') or last;
    if ($next != $oldest) { $overtaken++; last; }
    is($oldest->finish->{error}, undef, "round $round: the oldest runs");
    push @running, $oldest;
    push @queue, $wire;
    $server->wait_waiters(scalar @queue);
  }
  is($overtaken, 0, "in $rounds releases nobody overtook the oldest waiter");
  is($server->holders, $PERMITS, 'and as many run as there are permits');
  while (@running) {
    (shift @running)->run('COMMIT');
    my $next = shift @queue or next;
    $next->finish;
    push @running, $next;
  }
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B11: a hundred loops that run by themselves all come round' => sub {
  my $granted = $server->admitted;
  my @loop = map { $server->connect('app') } 1 .. $LOOPS;
  my %left = map { $_ => 3 } @loop;
  $_->send_query('SELECT pg_sleep(0.02)') for @loop;
  my ($most, @errors) = (0);
  while (my @busy = grep { $left{$_} } @loop) {
    my $held = $server->holders;
    $most = $held if $held > $most;
    for my $wire (grep { $_->readable } @busy) {
      my $error = $wire->finish->{error};
      push @errors, Sluice::Wire::describe($error) if $error;
      $wire->send_query('SELECT pg_sleep(0.02)') if --$left{$wire};
    }
  }
  is("@errors", '', 'three transactions of each of the hundred, and no error');
  cmp_ok($most, '<=', $PERMITS, 'never more at a time than there are permits');
  is($server->admitted - $granted, 3 * $LOOPS, 'each of them got a permit');
  $server->ledger_is_zero('the ledger is zero');
};

is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('no barging: nothing crashed');
done_testing();
