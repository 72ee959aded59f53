# 200 clients of 21 tenants storm a queue of 42 places, each asking again as soon as it is refused (requirements A13, A15, P2, P5): the
# queue keeps its bound, every tenant comes to its share of it and stays there, nothing is granted above a limit, and all are served.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IO::Select;
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my ($PERMITS, $PLACES, $TENANTS, $PER_TENANT, $FLOOD) = (4, 42, 20, 5, 100);
my @tenant = map { sprintf 'tenant_%02d', $_ } 1 .. $TENANTS;

my $server = Sluice->start('storm', roles => [ 'flood', @tenant ], conf => { max_connections => 260, shared_buffers => "'64MB'" });
$server->apply({ classes => { interactive => { permits => $PERMITS, maxQueue => $PLACES, queueDeadlineMs => $PATIENT } }, retry => { baseMs => 1 },
    tenants => { '*' => { maxInflight => $PERMITS } } });

my @holder = map { hold($server->connect('flood')) } 1 .. $PERMITS;
# Whoever floods is there first.
my @client = map { { role => 'flood', wire => $server->connect('flood'), served => 0, refused => 0 } } 1 .. $FLOOD;
for my $round (1 .. $PER_TENANT) { push @client, map { { role => $_, wire => $server->connect($_), served => 0, refused => 0 } } @tenant; }
my (%answer, @unexpected);

# Reads the answers that are there; the clients that were refused, and those that were served.
sub read_answers {
  my ($wait, @waiting) = @_;
  my %of = map { fileno($_->{wire}{socket}) => $_ } @waiting;
  my (@refused, @served);
  for my $socket (IO::Select->new(map { $_->{wire}{socket} } @waiting)->can_read($wait)) {
    my $client = $of{ fileno $socket };
    my $error = $client->{wire}->finish->{error};
    my $reason = $error ? detail_of($error)->{reason} // "$error->{code} $error->{message}" : 'served';
    $answer{$reason}++;
    push @unexpected, $reason if $reason !~ /^(served|queue_full|pushed_out)$/;
    if ($error) { $client->{refused}++; push @refused, $client; } else { $client->{served}++; push @served, $client; }
  }
  return (\@refused, \@served);
}

sub is_bounded {
  my ($queued, $in_use, $over) = @{ $server->rows('SELECT sum(queued), sum(in_use), (SELECT over_limit_grants FROM sluice.status) FROM sluice.classes')->[0] };
  return $queued <= $PLACES && $in_use <= $PERMITS && $over == 0;
}

sub places_of { return { map { @$_ } @{ $server->rows('SELECT tenant, queued FROM sluice.tenants WHERE queued > 0') } }; }

subtest 'while no permit comes back every tenant gets its share of the places' => sub {
  my $queued = sub { $server->waiters('interactive') };
  $_->{wire}->send_query('SELECT 1') for @client[ 0 .. $FLOOD - 1 ];
  my $answers = 0;
  ok(wait_until(sub { my ($refused) = read_answers(0.01, @client[ 0 .. $FLOOD - 1 ]); $answers += @$refused; $answers == $FLOOD - $PLACES }, 'the flood\'s refusals'),
    'the flood fills the queue, and the rest of it is refused');
  is($queued->(), $PLACES, 'the queue is full');
  my @waiting = grep { $_->{refused} == 0 } @client[ 0 .. $FLOOD - 1 ];
  $_->{wire}->send_query('SELECT 1') for @client[ $FLOOD .. $#client ];
  push @waiting, @client[ $FLOOD .. $#client ];
  # Every refused client comes again at once, ten times.
  my ($asked, $bounded, $looks) = (0, 1, 0);
  my %tries;
  while ($asked < 10 * @client) {
    my ($refused) = read_answers(0.2, @waiting);
    last if !@$refused && scalar(@waiting) == $PLACES;
    my %gone = map { $_ => 1 } @$refused;
    @waiting = grep { !$gone{$_} } @waiting;
    for my $client (@$refused) {
      next if ++$tries{$client} > 10;
      $client->{wire}->send_query('SELECT 1');
      push @waiting, $client;
      $asked++;
    }
    $bounded &&= is_bounded();
    $looks++;
  }
  ok($bounded, "the queue had $PLACES places and the class $PERMITS permits at each of $looks looks");
  ok(wait_until(sub { my ($refused) = read_answers(0.05, @waiting); my %gone = map { $_ => 1 } @$refused; @waiting = grep { !$gone{$_} } @waiting; @waiting == $PLACES },
      'the last refusals'), 'who has a place keeps it, the others have their answer');
  my $places = places_of();
  my ($fewest, $most) = (sort { $a <=> $b } map { $places->{$_} // 0 } 'flood', @tenant)[ 0, -1 ];
  note("between $fewest and $most places a tenant; " . join ', ', map { "$answer{$_} $_" } sort keys %answer);
  cmp_ok($fewest, '>=', 1, 'every tenant has a place, the flood too');
  cmp_ok($most, '<=', $fewest + 2, 'and none has more than two beyond any other: no flood is in anybody\'s place');
  my $pushed = $server->status('pushed_out');
  cmp_ok($pushed, '>=', $PLACES - $most, 'the flood was pushed out for them');
  # The shares are even now: whoever comes again is refused, and pushes out nobody.
  my %waits = map { $_ => 1 } @waiting;
  my @again = grep { !$waits{$_} } @client;
  $_->{wire}->send_query('SELECT 1') for @again;
  my %before = %answer;
  my $left = @again;
  ok(wait_until(sub { my ($refused) = read_answers(0.05, @again); $left -= @$refused; $left <= 0 }, 'all are refused again'), 'another ' . @again . ' requests are all refused');
  cmp_ok($server->status('pushed_out') - $pushed, '<=', $TENANTS + 1, 'at the most one for each tenant to even out what was left: nobody pushes out forever');
  is(scalar(@{ $server->discrepancies }), 0, 'reconcile() has no row');
  $_->{waits} = 0 for @client;
  my %has_place = map { $_ => 1 } grep { !$_->{wire}->readable } @waiting;
  $_->{waits} = $has_place{$_} // 0 for @client;
};

subtest 'when permits come back all are served, each tenant in its turn' => sub {
  $_->run('COMMIT') for @holder;
  my ($rounds, $until, $looks, $bounded, @discrepancy) = (3, time + 150, 0, 1);
  # Who waits has its answer to come; the others ask.
  for my $client (@client) {
    $client->{served} = 0;
    $client->{wire}->send_query('SELECT pg_sleep(0.001)') unless $client->{waits};
  }
  my @waiting = @client;
  my %last_turn;
  while (@waiting && time < $until) {
    my ($refused, $served) = read_answers(0.2, @waiting);
    my %done = map { $_ => 1 } grep { $_->{served} >= $rounds } @$served;
    $last_turn{ $_->{role} } = ++$looks for grep { $done{$_} } @$served;
    @waiting = grep { !$done{$_} } @waiting;
    sleep 0.005 if @$refused > 50;
    $_->{wire}->send_query('SELECT pg_sleep(0.001)') for grep { !$done{$_} } @$refused, @$served;
    if (time % 2 == 0 && !@discrepancy) { push @discrepancy, @{ $server->discrepancies }; }
    $bounded &&= is_bounded() if rand() < 0.05;
  }
  is(scalar(@waiting), 0, "each of the @{[ scalar @client ]} clients was served $rounds times");
  ok($bounded, 'the queue and the class kept their bounds at every look');
  is(scalar(@discrepancy), 0, 'reconcile() had no row meanwhile');
  my $flood_last = $last_turn{flood} // 0;
  my $later = grep { ($last_turn{$_} // 0) > $flood_last } @tenant;
  cmp_ok($later, '<=', 2, 'the flood, which asks for 20 times as much as a tenant, is done last') or diag("$later tenants were served after it");
  note(join ', ', map { "$answer{$_} $_" } sort keys %answer);
};

is(join(', ', @unexpected), '', 'nobody was told anything else');
is($server->status('over_limit_grants'), 0, 'no grant was above a limit');
is($server->status('faults'), 0, 'no invariant was broken');
$server->ledger_is_zero('a push-out storm of 200 clients: the ledger is zero at the end');
$server->server_log_is_clean('push-out storm: nothing crashed');
done_testing();
