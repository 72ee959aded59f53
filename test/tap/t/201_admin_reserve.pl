# Exhaustion must not lock out administrators, probes and walsenders (cases A1, A2; requirements A23, A24).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time);

# The numbers of case A1: eight slots, two of them PostgreSQL's own.
my $server = Sluice->start(
  'reserve', roles => [qw(app dba monitor)],
  conf => { max_connections => 8, superuser_reserved_connections => 2 });
$server->run('CREATE ROLE boss SUPERUSER LOGIN');
$server->run('CREATE ROLE standby REPLICATION LOGIN');
$server->apply({
    serverSessionPermits => 2, adminReserve => 2, loginHeadroom => 2, classes => { interactive => 1 },
    adminRoles => { dba => {}, monitor => { guaranteedSessions => 1 } } });
$server->forget_admin;

my @app = map { $server->connect('app') } 1 .. 2;
my $refused = $server->try_connect('app');
is($refused->error->{code}, '53300', 'case A1: an ordinary login beyond serverSessionPermits is refused with 53300');
is($refused->error->{severity}, 'FATAL', 'case A1: the refusal ends the login');
is(detail_of($refused->error)->{rule}, 'serverSessionPermits', 'case A1: the refusal names the limit');

# One application session keeps the only execution permit.
$app[0]->run('BEGIN');
$app[0]->run('SELECT 1');

my (@boss, $last);
for (1 .. 8) {
  $last = $server->try_connect('boss', tcp => 1);
  last unless $last->logged_in;
  push @boss, $last;
}
ok(@boss >= 1, 'case A1: superusers over TCP get in beyond the ordinary permits');
is($last->error ? $last->error->{code} : 'logged in', '53300', 'case A1: superusers are refused before they take the last slots');

my $started = time;
my $monitor = $server->try_connect('monitor');
ok($monitor->logged_in, 'case A1: the monitor role logs in while everything else is exhausted') or diag(Sluice::Wire::describe($monitor->error));
is($monitor->logged_in ? $monitor->value('SELECT 1') : undef, 1, 'case A1: the monitor runs select 1 while the class is full');
note(sprintf 'login and select 1 of the monitor took %.3f s', time - $started);

# Ten retry storms later the guarantee still stands (the seats of the monitor are not handed to anybody else).
$monitor->close;
$server->try_connect('app') for 1 .. 10;
$server->try_connect('boss', tcp => 1) for 1 .. 10;
my $again;
ok(wait_until(sub { $again = $server->try_connect('monitor'); $again->logged_in }, 'the monitor logs in again'),
  'case A1: the monitor gets in again after a retry storm of applications and superusers');

subtest 'case A2: walsenders are outside the session ledger' => sub {
  $_->close for @boss;
  $again->close;
  my $refused_app;
  ok(wait_until(sub { $server->value('SELECT count(*) FROM pg_stat_activity WHERE usename = \'boss\'') == 0 }, 'bosses leave'), 'bosses left');
  $refused_app = $server->try_connect('app');
  is($refused_app->error->{code}, '53300', 'the permits of the application are exhausted');
  my $before = $server->value('SELECT count(*) FROM sluice.sessions WHERE tenant IS NOT NULL');
  my $probe = $server->try_connect('standby', params => { replication => 'true' }, database => undef);
  ok($probe->logged_in, 'a replication=true login is admitted') or diag(Sluice::Wire::describe($probe->error));
  my $answer = $probe->query('IDENTIFY_SYSTEM');
  is(scalar @{ $answer->{rows} }, 1, 'IDENTIFY_SYSTEM is answered');
  is($server->value('SELECT sum(in_use) FROM sluice.classes'), 1, 'the walsender holds no execution permit');
  $probe->close;
};

$app[0]->run('COMMIT');
$server->ledger_is_zero('case A1: the ledger is zero at the end');
$server->server_log_is_clean('case A1: nothing crashed');
done_testing();
