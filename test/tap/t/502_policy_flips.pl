# Policies change under load: limits go down and up, classes come and go, shadow and enforcement, the kill switch by file and
# HUP. Whatever a transaction took it returns, and at the end both ledgers are zero.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use JSON::PP ();
use Sluice;
use Sluice::Stress;
use Test::More;
use Time::HiRes qw(sleep time);

my $TRANSACTIONS = $ENV{SLUICE_FLIP_TRANSACTIONS} // 5000;

my $server = Sluice->start(
  'flips', roles => [ Sluice::Stress::roles() ],
  conf => { max_connections => 100, max_prepared_transactions => 300, deadlock_timeout => "'50ms'", log_min_messages => "'fatal'" });
prepare_tables($server);

# A class that may borrow from those named, more often than not.
sub borrowing {
  my (@from) = @_;
  return () if rand() < 0.3;
  return (borrow => { from => \@from, max => 1 + int rand 6, ttlMs => 20 + int rand 300, onExpiry => (qw(mark cancel))[ int rand 2 ] });
}

# A policy drawn at random: permits, row limits, queues, whether the second and third class exist, whose class is whose, who
# borrows from whom, or no bulkheads at all.
sub random_policy {
  my $permits = sub { 1 + int rand $_[0] };
  my %class = (main => { permits => $permits->(12), maxQueue => 5 + int rand 40, queueDeadlineMs => 500 + int rand 3000 });
  $class{side} = { permits => $permits->(3), maxQueue => 10, queueDeadlineMs => 1000, transactionTimeLimitMs => 1500 } if rand() < 0.7;
  $class{deep} = { permits => $permits->(5), maxQueue => 10, queueDeadlineMs => 2000 } if rand() < 0.4;
  $class{main}{mayEnter} = ['side'] if $class{side};
  for my $name (keys %class) {
    my @others = grep { $_ ne $name } sort keys %class;
    $class{$name} = { %{ $class{$name} }, borrowing(@others) } if @others;
  }
  return {
    serverSessionPermits => 80, defaultClass => 'main', overdraft => { max => int rand 3 }, classes => \%class,
    tenants => { '*' => { weight => 1 + int rand 4 }, coral => { maxInflight => 1 + int rand 6 }, amber => { maxInflight => 1 + int rand 12 } },
    rand() < 0.1 ? (bulkheads => JSON::PP::false) : (),
    $class{side} && rand() < 0.5 ? (assign => [ { role => 'blue', class => 'side' } ]) : () };
}

srand 7;
$server->apply(random_policy(), over_limit => 'drain');
my $load = start_load($server, '--workers' => 40, '--transactions' => $TRANSACTIONS, '--seconds' => 1200);
my ($policies, $shadows, $switches, $borrowed, @discrepancy) = (0, 0, 0, 0);
until (load_is_over($load)) {
  my $what = rand;
  if ($what < 0.7) {
    my $shadow = rand() < 0.25;
    $server->apply(random_policy(), over_limit => 'drain', $shadow ? (mode => 'shadow') : ());
    $policies++;
    $shadows++ if $shadow;
  } elsif ($what < 0.85) {
    $server->set_and_hup('pg_sluice.enforcement' => (qw('off' 'shadow'))[ int rand 2 ]);
    sleep rand 0.3;
    $server->set_and_hup('pg_sluice.enforcement' => q{'policy'});
    $switches++;
  } else {
    push @discrepancy, map { join ', ', map { $_ // 'null' } @$_ } @{ $server->discrepancies };
  }
  $borrowed ||= $server->value('SELECT sum(borrowed) > 0 FROM sluice.classes') eq 't';
  load_may_end($load) if $policies > 10 && $shadows > 0 && $switches > 0 && $borrowed;
  sleep rand 0.25;
}
my $summary = check_load($load);
diag("$policies policies ($shadows in shadow), $switches uses of the kill switch");
cmp_ok($summary->{shapes} // 0, '>=', $TRANSACTIONS, "$TRANSACTIONS transactions ran");
cmp_ok($policies, '>', 10, 'while policies changed');
cmp_ok($shadows, '>', 0, 'some of them in shadow');
cmp_ok($switches, '>', 0, 'and enforcement was switched off and on');
ok($borrowed, 'while permits were lent');
is(join("\n", @discrepancy), '', 'reconcile found nothing under load');
is($server->status('faults'), 0, 'no invariant was broken');
is($server->status('reclaimed'), 0, 'nothing had to be reclaimed');
is($server->status('over_limit_grants'), 0, 'no permit was granted above the limit of its moment');
check_work($server, $load);
$server->ledger_is_zero('both ledgers balance at the end');
my $quiet = { classes => { main => 2 }, defaultClass => 'main', serverSessionPermits => 80 };
$server->apply($quiet, over_limit => 'drain');
is($server->value(q{SELECT string_agg(class, ',') FROM sluice.classes WHERE state = 'active'}), 'main', 'and a last policy is whole again');
$server->ledger_is_zero('with nothing left of the others');
$server->server_log_is_clean('nothing crashed');
done_testing();
