# Case B1's kind: one tenant's flood must not starve another, whatever the roles are called, in whatever order they were made, and
# whoever came first. The test itself holds the permits and returns them, measures what each was held, and asserts the service that
# the scheduler guarantees for it, and nothing about the speed of the machine (requirements A13, A15).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $FLOOD = 8;
my $ROUNDS = 6;
my $HOLD = 0.03;
my $AGING_MS = 50;
my $LOOK_AHEAD = $AGING_MS / 10 / 1000;
my $seed = $ENV{SLUICE_SEED} // time ^ $$;
srand $seed;
diag("SLUICE_SEED=$seed repeats the names of this run");

my $server = Sluice->start('names', conf => { max_connections => 60 });

# Names of every kind that a role can have: sorted first, sorted last, with capitals, spaces, quotes, patterns and other alphabets.
sub random_name {
  my @letters = ('a' .. 'z', 'A' .. 'Z', 0 .. 9, '_', '-', '.', ' ', '%', '"', "'", '/', "\xc3\xa9", "\xe4\xb8\xad");
  my $name = join '', map { $letters[ rand @letters ] } 1 .. 1 + int rand 12;
  return $name =~ s/^ | $/x/gr;
}

sub random_pair {
  my ($one, $two) = (random_name(), random_name());
  return $one eq $two ? random_pair() : ($one, $two);
}

sub create_role { my ($name) = @_; $server->run('CREATE ROLE "' . ($name =~ s/"/""/gr) . '" LOGIN'); return; }

# What one wait may last, in the flood's service: scheduler.md's first bound between two rows of weight 1 in a class of one permit,
# sum of H + L + max(H, L), with the longest hold H of each as this machine makes it.
sub bound {
  my ($longest) = @_;
  my $sum = 0;
  $sum += $_ + $LOOK_AHEAD + ($_ > $LOOK_AHEAD ? $_ : $LOOK_AHEAD) for @$longest{qw(flood online)};
  return $sum;
}

sub longest { my ($longest, $who, $held) = @_; $longest->{$who} = $held if $held > $longest->{$who}; return; }

# A class of one permit. The online tenant comes again as soon as it was served, as a client in a closed loop does; so do those of the
# flood. Nobody is at their mercy: in each wait the flood gets no more service than the bound, while whoever is served in the order
# of arrival would get eight transactions.
sub duel {
  my ($flood_role, $online_role, $first) = @_;
  my @behind = map { $server->connect($flood_role) } 1 .. $FLOOD;
  my $online = $server->connect($online_role);
  my %longest = (flood => 0, online => 0);
  my $holder = $first eq 'flood' ? shift @behind : $online;
  my $asked = time;
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  my $since = time;
  for my $n (1 .. @behind) { queue_up($behind[ $n - 1 ]); $server->wait_waiters($n); }
  if ($first eq 'flood') { queue_up($online); $server->wait_waiters(@behind + 1); }
  my ($served, $flood_got, $from) = (0, 0, time);
  while ($served < $ROUNDS) {
    if ($holder == $online) {
      $online->send_raw(join '', map { Sluice::Wire::query_message($_) } 'COMMIT', 'BEGIN', 'SELECT 1');
      $online->finish for 1 .. 2;
      longest(\%longest, online => time - $asked);
      $served++;
      ($holder, $flood_got) = (granted($online, @behind), 0);
      # With a credit the online tenant may be served twice in a row; the flood's own order is that of arrival.
      next if $holder == $online;
      is($holder, $behind[0], "the flood's oldest runs after the online tenant") or return;
      shift @behind;
      $server->wait_waiters(@behind + 1);
      ($asked, $since, $from) = (time, time, time);
      next;
    }
    sleep $HOLD;
    $flood_got += time - ($since > $from ? $since : $from);
    my $held_from = $asked;
    $asked = time;
    end($holder);
    longest(\%longest, flood => time - $held_from);
    my $next = granted($online, @behind);
    $since = time;
    queue_up($holder);
    push @behind, $holder;
    @behind = grep { $_ != $next } @behind;
    $server->wait_waiters(@behind + ($next == $online ? 0 : 1));
    $holder = $next;
    next if $next == $online;
    cmp_ok($flood_got, '<=', bound(\%longest), 'the flood gets no more service in one wait than the bound') or return;
  }
  pass("$ROUNDS transactions of the online tenant were served");
  # Let go of everybody: whoever is granted ends.
  my @left = (@behind, $online);
  end($holder);
  while (@left) {
    my $next = granted(@left) // last;
    end($next);
    @left = grep { $_ != $next } @left;
  }
  is(scalar @left, 0, 'all who waited were served');
  return;
}

for my $round (1 .. 3) {
  my ($flood, $online) = random_pair();
  my @order = rand() < 0.5 ? ($flood, $online) : ($online, $flood);
  create_role($_) for @order;
  for my $first ('flood', 'online') {
    subtest "case B1's kind, pair $round, $first first" => sub {
      note("flood '$flood', online '$online', created first: '$order[0]'");
      $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 600000, agingMs => $AGING_MS } } }, over_limit => 'drain');
      duel($flood, $online, $first);
      $server->ledger_is_zero('the ledger is zero');
    };
  }
  subtest "case B1's kind, pair $round: a flood at its in-flight limit makes nobody else wait" => sub {
    # The most specific pattern wins, and one without a star is the name itself.
    my $pattern = $flood =~ /\*/ ? '*' : $flood;
    $server->apply({ classes => { interactive => { permits => 4, queueDeadlineMs => 600000 } }, tenants => { '*' => {}, $pattern => { maxInflight => 3 } } },
      over_limit => 'drain');
    my $waited = q{SELECT coalesce(sum(waited), 0) FROM sluice.tenants WHERE tenant = '} . ($online =~ s/'/''/gr) . q{'};
    my $before = $server->value($waited);
    my @flood = map { queue_up($server->connect($flood)) } 1 .. $FLOOD;
    ok($server->wait_waiters($FLOOD - 3), 'the flood has three permits, the rest of it waits');
    my $session = $server->connect($online);
    for (1 .. 50) { $session->run('SELECT 1'); }
    is($server->value($waited), $before, 'of 50 transactions of the other tenant none waited');
    is($server->holders, 3, 'and the flood still has three');
    while (@flood) {
      my $next = granted(@flood) // last;
      end($next);
      @flood = grep { $_ != $next } @flood;
    }
    $server->ledger_is_zero('the ledger is zero');
  };
}

is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('names and orders: nothing crashed');
done_testing();
