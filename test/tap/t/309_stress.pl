# Forty connections, eight permits, 5,000 transactions of every shape, with cancels, terminations, disconnects, clients
# killed by signal 9 and changes of the limit: no discrepancy at any time, no grant above a limit, nothing acknowledged is lost
# (requirements A3, A8, A19, C18).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use POSIX ();
use PostgreSQL::Test::Utils ();
use Sluice;
use Sluice::Mischief;
use Test::More;
use Time::HiRes qw(time sleep);

my ($clients, $permits, $wanted, $least_looks, $most_seconds) = (40, 8, $ENV{SLUICE_STRESS_TRANSACTIONS} // 5_000, 40, 1200);
my $seed = $ENV{SLUICE_STRESS_SEED} // int rand 1_000_000;
diag("seed $seed (SLUICE_STRESS_SEED)");
srand $seed;

my $server = Sluice->start('stress', roles => ['app'], conf => { max_connections => 100, max_prepared_transactions => 60, synchronous_commit => 'off' });
$server->run(<<'SQL');
CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL);
INSERT INTO account SELECT g, 1000 FROM generate_series(1, 20) g;
CREATE TABLE written (id text PRIMARY KEY);
CREATE PROCEDURE work(n int) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. n LOOP
    PERFORM count(*) FROM account;
    IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
END $$;
GRANT ALL ON account, written TO app;
SQL
$server->apply({ serverSessionPermits => 80, classes => { interactive => { permits => $permits, maxQueue => 100, queueDeadlineMs => 3000 } } });

my $folder = PostgreSQL::Test::Utils::tempdir();
my (%child, $started_clients);

sub start_client {
  my ($number) = @_;
  my $client_seed = int rand 1_000_000_000;
  $started_clients++;
  my $pid = fork;
  die "fork: $!" unless defined $pid;
  if (!$pid) {
    my $incarnation = "$number.$started_clients";
    eval { Sluice::Mischief->new(number => $incarnation, seed => $client_seed, address => [ $server->address(tcp => $number % 2) ], folder => $folder)->run };
    POSIX::_exit($@ ? 1 : 0);
  }
  $child{$pid} = $number;
  return;
}

start_client($_) for 1 .. $clients;

my ($discrepancies, $over, $rounds, $killed, $signalled) = ('', 0, 0, 0, 0);
my $until = time + $most_seconds;
my $limit = $permits;
while (($server->admitted < $wanted || $rounds < $least_looks || $server->value('SELECT count(*) FROM written') <= 100) && time < $until) {
  $rounds++;
  my $victim = $server->value(q{SELECT pid FROM pg_stat_activity WHERE usename = 'app' ORDER BY random() LIMIT 1});
  my $how = rand() < 0.6 ? 'pg_cancel_backend' : 'pg_terminate_backend';
  if ($victim) { $server->run("SELECT $how($victim)"); $signalled++; }
  if (rand() < 0.1) {
    my ($pid) = (keys %child)[ rand keys %child ];
    my $number = delete $child{$pid};
    kill 'KILL', $pid;
    waitpid $pid, 0;
    $killed++;
    start_client($number);
  }
  $over++ if $limit == $permits && $server->holders > $limit;
  if ($rounds % 5 == 0) {
    my $rows = $server->discrepancies;
    $discrepancies .= join(', ', map { $_ // '' } @$_) . '; ' for @$rows;
    last if $discrepancies ne '';
    # What a killed client had prepared is nobody's any more.
    for my $row (@{ $server->rows(q{SELECT gid FROM pg_prepared_xacts WHERE prepared < now() - interval '2 s'}) }) {
      $server->admin->query("ROLLBACK PREPARED '$row->[0]'");
    }
  }
  if ($rounds % 15 == 0) {
    # Lowered limits drain: until the last holder above them has ended, sampling from outside proves nothing.
    $limit = $limit == $permits ? 4 : $permits;
    $server->apply({ serverSessionPermits => 80, classes => { interactive => { permits => $limit, maxQueue => 100, queueDeadlineMs => 3000 } } },
      over_limit => 'drain');
  }
  sleep 0.02;
}
my $admitted = $server->admitted;
open my $stop, '>', "$folder/stop" or die "stop: $!";
close $stop;
waitpid $_, 0 for keys %child;

cmp_ok($admitted, '>=', $wanted, "stress: at least $wanted transactions");
cmp_ok($rounds, '>=', $least_looks, "stress: at least $least_looks rounds of mischief");
diag("$admitted transactions, $signalled cancels and terminations, $killed clients killed, $rounds looks");
is($discrepancies, '', 'stress: reconcile() was empty at every look under load');
is($over, 0, 'stress: never more holders than permits, seen from outside');
is($server->status('over_limit_grants'), 0, 'stress: never a grant above a limit, seen in the server at each grant');
is($server->status('faults'), 0, 'stress: no broken invariant');
is($server->status('reclaimed'), 0, 'stress: no session had to be reclaimed');
$server->admin->query("ROLLBACK PREPARED '$_->[0]'") for @{ $server->rows('SELECT gid FROM pg_prepared_xacts') };
$server->ledger_is_zero('stress: the ledger is zero at the end');

my @report = map { split /\n/, PostgreSQL::Test::Utils::slurp_file($_) } glob "$folder/report.*";
my @unexpected = grep { !/^row / } @report;
is(join("\n", @unexpected[ 0 .. ($#unexpected > 9 ? 9 : $#unexpected) ]), '', 'stress: no client was told anything unexpected');
my %written = map { $_->[0] => 1 } @{ $server->rows('SELECT id FROM written') };
my @lost = grep { !$written{$_} } map { /^row (\S+)/ ? $1 : () } @report;
is("@lost", '', 'stress: no acknowledged commit was lost');
cmp_ok(scalar(keys %written), '>', 100, 'stress: and there were many');
is($server->value('SELECT sum(balance) FROM account'), 20_000, 'stress: no transaction was done in part');
$server->server_log_is_clean('stress: nothing crashed');
done_testing();
