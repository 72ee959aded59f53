# pg_sluice.enforcement in the file and a HUP suffice, without any login: 200 waiters are admitted, not refused, and the counters
# stay exact over any flip (requirements A7, A19).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time);

my $waiters = 200;
my $server = Sluice->start('switch', roles => ['app'], conf => { max_connections => $waiters + 40 });
my $generation = $server->apply({ serverSessionPermits => $waiters + 4, classes => { interactive => { permits => 2, queueDeadlineMs => $PATIENT } } });


my @holder = map { $server->connect('app') } 1 .. 2;
for my $holder (@holder) { $holder->run('BEGIN'); $holder->run('SELECT 1'); }
my @waiting = map { $server->connect('app') } 1 .. $waiters;

for my $word (qw(off shadow)) {
  my $before = $server->admitted;
  my $by_switch = $server->status('admitted_by_switch');
  $_->send_raw(Sluice::Wire::query_message('BEGIN') . Sluice::Wire::query_message('SELECT 7')) for @waiting;
  ok($server->wait_waiters($waiters), "$word: $waiters sessions wait for two permits");
  my $started = time;
  $server->set_and_hup('pg_sluice.enforcement' => "'$word'");
  $_->finish for @waiting;
  my @answer = map { $_->finish } @waiting;
  my $took = time - $started;
  is(scalar(grep { !$_->{error} && $_->{rows}[0][0] == 7 } @answer), $waiters, "$word: every waiter is admitted, none refused");
  note(sprintf '%s: all of them %.2f s after the HUP', $word, $took);
  is($server->waiters, 0, "$word: nobody waits any more");
  is($server->status('admitted_by_switch') - $by_switch, $waiters, "$word: each admission by the switch is counted");
  # All of them are inside a transaction now. Enforcement comes back while they hold what they were given.
  $server->set_and_hup('pg_sluice.enforcement' => "'policy'");
  my $late = $server->connect('app');
  ok(wait_until(sub { $late->value('SHOW pg_sluice.enforcement') eq 'policy' }, 'switch back'), "$word: the switch is back at policy");
  ok(wait_until(sub { ($server->status('enforcement') // '') eq 'policy' }, 'switch word'), "$word: status says so");
  $late->send_query('SELECT 8');
  ok($server->wait_waiters(1), "$word: newcomers queue again while more are inside than the limit");
  for my $session (@waiting) { $session->send_query('COMMIT'); }
  is(scalar(grep { $_->finish->{error} } @waiting), 0, "$word: every transaction ends");
  ok(!$late->readable(0.3), "$word: two permits are still held by the first holders, so the newcomer waits");
  $holder[0]->run('COMMIT');
  is($late->finish->{rows}[0][0], 8, "$word: and is granted when one of them commits");
  $late->close;
  is($server->holders, 1, "$word: exactly one permit is held");
  $holder[0]->run('BEGIN');
  $holder[0]->run('SELECT 1');
  is(scalar @{ $server->discrepancies }, 0, "$word: reconcile() is empty while permits are held");
}

subtest 'flips under load leave exact counters' => sub {
  $_->run('COMMIT') for @holder;
  my @busy = @waiting[ 0 .. 19 ];
  my ($errors, $done) = (0, 0);
  my $until = time + 180;
  my @word = qw(off policy shadow policy);
  my $flip = 0;
  my $next = time;
  $_->send_query('SELECT pg_sleep(0.002)') for @busy;
  my $select = IO::Select->new(map { $_->{socket} } @busy);
  my %of = map { $_->{socket} => $_ } @busy;
  # Until there were enough of both; how fast that is does not matter.
  while (($flip < 30 || $done < 500) && time < $until) {
    if (time > $next) { $server->set_and_hup('pg_sluice.enforcement' => "'" . $word[ $flip++ % @word ] . "'"); $next = time + 0.15; }
    for my $socket ($select->can_read(0.05)) {
      my $session = $of{$socket};
      $errors++ if $session->finish->{error};
      $done++;
      $session->send_query('SELECT pg_sleep(0.002)');
    }
  }
  $_->finish for @busy;
  $server->set_and_hup('pg_sluice.enforcement' => "'policy'");
  is($errors, 0, "no statement failed in $done over $flip flips");
  cmp_ok($done, '>=', 500, 'and the load was real');
  cmp_ok($flip, '>=', 30, 'and so were the flips');
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'with the switch off logins beyond the permits are admitted, and come back into the count' => sub {
  $_->close for @waiting[ 100 .. $#waiting ];
  ok($server->wait_sessions(102), 'half of the sessions left');
  $server->apply({ serverSessionPermits => 102, classes => { interactive => 2 } });
  is($server->try_connect('app')->error->{code}, '53300', 'the session permits are used up');
  $server->set_and_hup('pg_sluice.enforcement' => "'off'");
  my @over;
  ok(wait_until(sub { my $wire = $server->try_connect('app'); push @over, $wire if $wire->logged_in; $wire->logged_in }, 'login'), 'off: a login beyond the permits is admitted');
  push @over, map { $server->connect('app') } 1 .. 4;
  $server->set_and_hup('pg_sluice.enforcement' => "'policy'");
  my $refused;
  ok(wait_until(sub { $refused = $server->try_connect('app'); $refused->logged_in ? ($refused->close, 0) : 1 }, 'refusal'), 'policy: the next one is refused');
  cmp_ok(detail_of($refused->error)->{used}, '>=', 106, 'and the sessions from the time of the switch are counted');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('the kill switch: nothing crashed');
done_testing();
