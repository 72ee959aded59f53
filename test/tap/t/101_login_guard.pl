# The login guard: a superuser gets in while clients stall at the password prompt (they hold PGPROC slots) or send nothing at all
# (they hold the postmaster's child slots), 20 new ones a second. Stock PostgreSQL refuses the superuser in both storms, which the
# same test shows with the guard switched off. Requirement A24.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Storm;
use Sluice::Wire;
use Test::More;
use Time::HiRes qw(time sleep);

my $attempts = 20;

my $node = PostgreSQL::Test::Cluster->new('logins');
$node->init;
unlink $node->data_dir . '/pg_hba.conf';
$node->append_conf('pg_hba.conf', "local all all trust\nhost all boss 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
my $server = Sluice->wrap($node);
$server->configure(conf => { max_connections => 50, authentication_timeout => '600s', log_min_messages => "'log'" });
$node->start;
$server->prepare(roles => ['app']);
$server->run('CREATE ROLE boss SUPERUSER LOGIN');

my %storm = (
  'clients stalled at the password prompt' => { burst => 60, say => Sluice::Storm::startup_packet('app') },
  'silent sockets' => { burst => 200, say => '' });

sub start_storm {
  my ($kind) = @_;
  $server->forget_admin;  # every superuser in this test has to come in through the storm
  return Sluice::Storm->start(port => $server->port, rate => 20, %{ $storm{$kind} });
}

# The aim is two seconds on a machine that has time for it. What passes or fails here is whether the guard makes room at all,
# whatever else the machine is doing; without the guard nobody gets in for as long as the storm lasts, which no timeout ends.
my $patience = 120;

# A session over TCP or the Unix socket, tried again for a while; undef when nobody got in.
sub superuser_session {
  my (%arg) = @_;
  my $started = time;
  while (time - $started < $patience) {
    my $wire = eval { $server->try_connect($arg{tcp} ? 'boss' : Sluice->superuser, tcp => $arg{tcp}, timeout => 10) };
    return $wire if $wire && $wire->logged_in && $wire->value('SELECT 1') == 1;
    sleep 0.05;
  }
  return undef;
}

# How long one login took, or undef.
sub superuser_login {
  my (%arg) = @_;
  my $started = time;
  my $wire = superuser_session(%arg) or return undef;
  $wire->close;
  return time - $started;
}

# How many logins the guard has ended, asked through the storm like everything else.
sub terminated {
  my $wire = superuser_session(tcp => 0) or return undef;
  my $count = $wire->value('SELECT logins_terminated FROM sluice.status');
  $wire->close;
  return $count;
}

sub attempt_logins {
  my @took;
  for my $i (1 .. $attempts) {
    push @took, superuser_login(tcp => $i % 2);
    sleep 0.1;
  }
  return @took;
}

sub set_guard {
  my ($value) = @_;
  $server->set_and_hup('pg_sluice.login_guard' => $value);
  return wait_until(sub { my $wire = $server->try_connect('app'); my $now = $wire->value('SHOW pg_sluice.login_guard'); $wire->close; $now eq $value }, 'reload');
}

for my $kind (sort keys %storm) {
  subtest "login guard: $kind" => sub {
    my $before = $server->status('logins_terminated');
    my $resident = $server->connect('app');
    my $storm = start_storm($kind);
    ok(wait_until(sub { (terminated() // 0) > $before }, 'the guard at work'), 'the guard has something to do');
    my @took = attempt_logins();
    is(scalar(grep { defined } @took), $attempts, "a superuser gets in, $attempts times out of $attempts");
    my ($worst) = sort { $b <=> $a } map { $_ // $patience } @took;
    diag(sprintf '%s: slowest login %.2f s, %d of %d within 2 s', $kind, $worst, scalar(grep { defined && $_ <= 2 } @took), $attempts);
    $storm->stop;
    is($resident->value('SELECT 1'), 1, 'a session that was there before is not touched');
    cmp_ok($server->status('logins_terminated'), '>', $before, 'what the guard ended is counted');
    cmp_ok($server->value(q{SELECT coalesce(sum(count), 0) FROM sluice.events WHERE event = 'login_terminated'}), '>', 0, 'and journalled');
    $server->ledger_is_zero('the ledger is zero');
  };
}

subtest 'login guard: switched off, both storms shut a superuser out' => sub {
  set_guard('off');
  for my $kind (sort keys %storm) {
    my $storm = start_storm($kind);
    # The storm takes a while to fill the server; then there is no room any more.
    my ($refused, $until) = (0, time + $patience);
    for (my $i = 0; $refused < 5 && time < $until; $i++) {
      my $wire = eval { $server->try_connect($i % 2 ? 'boss' : Sluice->superuser, tcp => $i % 2, timeout => 10) };
      $refused = $wire && $wire->logged_in ? 0 : $refused + 1;
      $wire->close if $wire;
      sleep 0.1;
    }
    is($refused, 5, "$kind: refused five times running, so the storm is real");
    $storm->stop;
  }
  ok(wait_until(sub { my $wire = $server->try_connect('app'); my $in = $wire->logged_in; $wire->close; $in }, 'calm'), 'calm returns');
  set_guard('on');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'login guard: a slow but honest login is not hit while there is room' => sub {
  my $before = $server->status('logins_terminated');
  my @slow = map { my $wire = $server->open_socket(tcp => 1); $wire->startup('app', 'postgres', {}); $wire } 1 .. 10;
  my @silent = map { $server->open_socket(tcp => 1) } 1 .. 10;
  is(scalar(grep { $_->receive->{type} eq 'R' } @slow), 10, 'ten logins wait at the password prompt');
  sleep 4;
  is(scalar(grep { $_->readable(0) } @slow, @silent), 0, 'after four seconds all of them, and ten silent sockets, still stand');
  is($server->status('logins_terminated'), $before, 'nothing was ended');
  $_->drop for @slow, @silent;
};

subtest 'login guard: the unused part of the admin reserve is kept free as well' => sub {
  my @more = (serverSessionPermits => 20, adminReserve => 20, adminRoles => { boss => {} });
  $server->apply({ @more });
  my $before = $server->status('logins_terminated');
  my $storm = start_storm('clients stalled at the password prompt');
  ok(wait_until(sub { (terminated() // 0) > $before }, 'the guard at work'), 'the guard has something to do');
  my @admins = grep { defined } map { superuser_session(tcp => 1) } 1 .. 12;
  is(scalar(grep { $_->value('SELECT 1') == 1 } @admins), 12, 'twelve administrators are in together over TCP');
  $storm->stop;
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('login guard: nothing crashed');
done_testing();
