# 20,000 transactions of every shape from 40 connections against 8 permits, while sessions are cancelled, terminated,
# disconnected and their clients killed: no discrepancy, no grant above a limit, nothing acknowledged that is lost.
# SLUICE_STRESS_TRANSACTIONS sets how many.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Stress;
use Test::More;
use Time::HiRes qw(sleep time);

my $TRANSACTIONS = $ENV{SLUICE_STRESS_TRANSACTIONS} // 20000;

my $server = Sluice->start(
  'stress', roles => [ Sluice::Stress::roles() ],
  conf => { max_connections => 100, max_prepared_transactions => 300, deadlock_timeout => "'50ms'", log_min_messages => "'fatal'" });
prepare_tables($server);
$server->apply({
  serverSessionPermits => 80, defaultClass => 'main', overdraft => { max => 2 }, tenants => { '*' => { maxInflight => 5 }, coral => { maxInflight => 3, weight => 3 } },
  classes => {
    main => { permits => 6, maxQueue => 25, queueDeadlineMs => 3000, mayEnter => ['side'] },
    side => { permits => 2, maxQueue => 10, queueDeadlineMs => 1000, transactionTimeLimitMs => 1500 } } });

my $load = start_load($server, '--workers' => 40, '--transactions' => $TRANSACTIONS, '--seconds' => 600);
my ($looks, $most, $over, @discrepancy) = (0, 0, 0);
until (load_is_over($load)) {
  push @discrepancy, map { join ', ', map { $_ // 'null' } @$_ } @{ $server->discrepancies };
  my $now = $server->rows('SELECT sum(in_use), sum(queued), bool_or(in_use > permits + (SELECT overdraft_limit FROM sluice.status)) FROM sluice.classes')->[0];
  $most = $now->[0] if $now->[0] > $most;
  $over++ if $now->[2] eq 't';
  $looks++;
  sleep 0.5;
}
my $summary = check_load($load);
cmp_ok($summary->{shapes} // 0, '>=', $TRANSACTIONS, "$TRANSACTIONS transactions ran");
cmp_ok($server->value('SELECT sum(granted) FROM sluice.classes'), '>=', $TRANSACTIONS, 'and took their permits from the ledger');
cmp_ok($summary->{did}{$_} // 0, '>', 0, "sessions met: $_") for qw(cancel terminate kill);
cmp_ok($server->value('SELECT sum(waited) FROM sluice.classes'), '>', $TRANSACTIONS / 20, 'many had to wait');
is(join("\n", @discrepancy), '', "reconcile found nothing in $looks looks under load");
is($over, 0, "no look found more holders than permits (at most $most at once)");
is($server->status('over_limit_grants'), 0, 'no permit was granted above a limit');
is($server->status('faults'), 0, 'no invariant was broken');
is($server->status('reclaimed'), 0, 'nothing had to be reclaimed');
check_work($server, $load);
$server->ledger_is_zero('both ledgers balance at the end');
$server->server_log_is_clean('nothing crashed');
done_testing();
