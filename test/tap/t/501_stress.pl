# 20,000 transactions of every shape from 40 connections against 8 permits, while sessions are cancelled, terminated,
# disconnected and their clients killed: no discrepancy, no grant above a limit, nothing acknowledged that is lost. The two
# classes borrow from each other, one of them against a cancel; the queue pushes out; requests are named, repeated and refused.
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
  'stress', roles => [ Sluice::Stress::roles(), 'heavy' ],
  conf => { max_connections => 100, max_prepared_transactions => 300, deadlock_timeout => "'50ms'", log_min_messages => "'fatal'",
    'pg_sluice.max_receipts' => 65536 });
prepare_tables($server);
$server->apply({
  serverSessionPermits => 80, defaultClass => 'main', overdraft => { max => 2 }, leaseMs => 600000,
  tenants => { '*' => { maxInflight => 5 }, coral => { maxInflight => 3, weight => 3 }, heavy => { weight => 100 } },
  classes => {
    main => { permits => 6, maxQueue => 12, queueDeadlineMs => 3000, mayEnter => ['side'], borrow => { from => ['side'], max => 2, ttlMs => 50, onExpiry => 'cancel' } },
    side => { permits => 2, maxQueue => 10, queueDeadlineMs => 1000, transactionTimeLimitMs => 1500, borrow => { from => ['main'], max => 3, ttlMs => 50 } } } });

# Every permit of the class is taken when the clients come, so that all of them have to queue; then they are let go.
my @holder = map { $server->connect($_) } ('amber') x 5, 'blue';
for my $holder (@holder) { $holder->run('BEGIN'); $holder->run('SELECT 1'); }
my $load = start_load($server, '--workers' => 40, '--transactions' => $TRANSACTIONS, '--seconds' => 1200, '--exactly-once' => 1);
ok($server->wait_some_waiter('main'), 'while all permits are held clients queue');
# Nobody's permit comes back, so their queue fills; then a tenant of great weight takes the place of the longest row's youngest.
my @heavy;
ok(wait_until(sub {
    push @heavy, $server->connect('heavy')->send_query('SELECT 1') if @heavy < 10;
    $_->send_query('SELECT 1') for grep { $_->readable && $_->finish } @heavy;
    $server->status('pushed_out') > 0;
  }, 'somebody is pushed out'), 'and a full queue pushes out');
$_->run('COMMIT') for @holder;
$_->close for @holder;
for my $wire (@heavy) { $wire->finish; $wire->close; }
my ($looks, $most, $over, $too_much, @discrepancy) = (0, 0, 0, 0);
until (load_is_over($load)) {
  push @discrepancy, map { join ', ', map { $_ // 'null' } @$_ } @{ $server->discrepancies };
  my $now = $server->rows(q{SELECT sum(in_use), sum(queued), bool_or(in_use > permits - lent + borrowed + (SELECT overdraft_limit FROM sluice.status)),
    bool_or(borrowed > CASE class WHEN 'main' THEN 2 ELSE 3 END) OR sum(borrowed) <> sum(lent) FROM sluice.classes})->[0];
  $most = $now->[0] if $now->[0] > $most;
  $over++ if $now->[2] eq 't';
  $too_much++ if $now->[3] eq 't';
  $looks++;
  load_may_end($load) if $server->value('SELECT min(borrows) > 0 AND sum(waited) > 0 FROM sluice.classes') eq 't'
    && $server->admitted >= $TRANSACTIONS / 4;
  sleep 0.5;
}
my $summary = check_load($load);
cmp_ok($summary->{shapes} // 0, '>=', $TRANSACTIONS, "$TRANSACTIONS transactions ran");
# Shapes that are refused, or repeated under their name, take none.
cmp_ok($server->value('SELECT sum(granted) FROM sluice.classes'), '>=', $TRANSACTIONS / 4, 'and took their permits from the ledger');
cmp_ok($summary->{did}{$_} // 0, '>', 0, "sessions met: $_") for qw(cancel terminate kill);
my $waited = $server->value('SELECT sum(waited) FROM sluice.classes');
cmp_ok($waited, '>', 0, 'some of them after a wait');
note("$waited had to wait");
my $counts = $server->rows('SELECT class, borrows, recalls, pushed_out, unreachable FROM sluice.classes ORDER BY class');
note("$_->[0]: $_->[1] borrowed, $_->[2] recalled, $_->[3] pushed out, $_->[4] unreachable") for @$counts;
is(scalar(grep { $_->[1] > 0 } @$counts), 2, 'both classes borrowed');
cmp_ok($summary->{answers}{'repeated: 42710'} // 0, '>', 0, 'a request that was repeated is a duplicate');
is(join("\n", @discrepancy), '', "reconcile found nothing in $looks looks under load");
is($over, 0, "no look found more holders than permits (at most $most at once)");
is($too_much, 0, 'nor more borrowed than may be, or another number than is lent');
is($server->status('over_limit_grants'), 0, 'no permit was granted above a limit');
is($server->status('faults'), 0, 'no invariant was broken');
is($server->status('reclaimed'), 0, 'nothing had to be reclaimed');
check_work($server, $load);
$server->ledger_is_zero('both ledgers balance at the end');
$server->server_log_is_clean('nothing crashed');
done_testing();
