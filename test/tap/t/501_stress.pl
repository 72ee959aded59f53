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

# Every permit of the class is taken when the clients come, so that all of them have to queue; then they are let go.
my @holder = map { $server->connect($_) } ('amber') x 5, 'blue';
for my $holder (@holder) { $holder->run('BEGIN'); $holder->run('SELECT 1'); }
my $load = start_load($server, '--workers' => 40, '--transactions' => $TRANSACTIONS, '--seconds' => 1200);
ok($server->wait_some_waiter('main'), 'while all permits are held clients queue');
$_->run('COMMIT') for @holder;
$_->close for @holder;
my ($looks, $most, $over, @discrepancy) = (0, 0, 0);
until (load_is_over($load)) {
  push @discrepancy, map { join ', ', map { $_ // 'null' } @$_ } @{ $server->discrepancies };
  my $now = $server->rows('SELECT sum(in_use), sum(queued), bool_or(in_use > permits + (SELECT overdraft_limit FROM sluice.status)) FROM sluice.classes')->[0];
  $most = $now->[0] if $now->[0] > $most;
  $over++ if $now->[2] eq 't';
  $looks++;
  load_may_end($load) if $server->value('SELECT sum(waited) FROM sluice.classes') > 0;
  sleep 0.5;
}
my $summary = check_load($load);
cmp_ok($summary->{shapes} // 0, '>=', $TRANSACTIONS, "$TRANSACTIONS transactions ran");
cmp_ok($server->value('SELECT sum(granted) FROM sluice.classes'), '>=', $TRANSACTIONS, 'and took their permits from the ledger');
cmp_ok($summary->{did}{$_} // 0, '>', 0, "sessions met: $_") for qw(cancel terminate kill);
my $waited = $server->value('SELECT sum(waited) FROM sluice.classes');
cmp_ok($waited, '>', 0, 'some of them after a wait');
note("$waited had to wait");
is(join("\n", @discrepancy), '', "reconcile found nothing in $looks looks under load");
is($over, 0, "no look found more holders than permits (at most $most at once)");
is($server->status('over_limit_grants'), 0, 'no permit was granted above a limit');
is($server->status('faults'), 0, 'no invariant was broken');
is($server->status('reclaimed'), 0, 'nothing had to be reclaimed');
check_work($server, $load);
$server->ledger_is_zero('both ledgers balance at the end');
$server->server_log_is_clean('nothing crashed');
done_testing();
