# The ledger is sized when MaxBackends is known: a big server takes its full load (case F18).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils ();
use Sluice;
use Test::More;

my $server = Sluice->start('sizes', roles => ['app'], conf => { max_connections => 20, max_prepared_transactions => 0 });
$server->apply({ serverSessionPermits => 10, classes => { interactive => 10 } });
my $small = $server->status('session_records');
cmp_ok($small, '>=', 20, 'case F18: the ledger has a record for each backend of the small server');
is($server->value('SELECT 1'), 1, 'case F18: the small server works');
$server->ledger_is_zero('case F18: the small ledger is zero');

my $permits = 480;
$server->set_and_hup(
  max_connections => 500, max_prepared_transactions => 50, max_worker_processes => 64, max_wal_senders => 20, shared_buffers => q{'16MB'});
$server->restart;
my $big = $server->status('session_records');
cmp_ok($big, '>=', 500 + 64 + 20, 'case F18: the ledger has grown with the settings');
cmp_ok($server->status('memory_bytes'), '>', 0, 'case F18: status shows its bytes');
like(PostgreSQL::Test::Utils::slurp_file($server->node->logfile), qr/pg_sluice .*: ledger of \d+ kB for $big sessions/, 'case F18: and the log says so at start');
is($server->value('SELECT max(generation) FROM sluice.policies'), 1, 'case F18: the policy is still there');
$server->apply({ serverSessionPermits => $permits, classes => { interactive => $permits } });

my @session = map { $server->try_connect('app') } 1 .. $permits;
is(scalar(grep { $_->logged_in } @session), $permits, "case F18: $permits sessions are admitted");
is($server->try_connect('app')->error->{code}, '53300', 'case F18: and not one more');
$_->send_raw(Sluice::Wire::query_message('BEGIN') . Sluice::Wire::query_message('SELECT 1')) for @session;
$_->finish for @session;
is(scalar(grep { $_->finish->{error} } @session), 0, 'case F18: each of them runs a transaction');
is($server->holders, $permits, 'case F18: all permits are held at once');
is(scalar @{ $server->discrepancies }, 0, 'case F18: reconcile() is empty under full load');
# Fifty of them end as prepared transactions.
my $prepared = grep { $session[$_]->code("PREPARE TRANSACTION 'p$_'") eq '' } 0 .. 49;
is($prepared, 50, 'case F18: fifty prepared transactions');
is($server->holders, $permits - 50, 'case F18: hold no permit');
is($session[0]->code("COMMIT PREPARED 'p$_'"), '', "case F18: commit prepared $_") for 0, 1;
$session[0]->run("ROLLBACK PREPARED 'p$_'") for 2 .. 49;
$server->ledger_is_zero('case F18: the ledger is zero after full load');
$server->server_log_is_clean('case F18: nothing crashed');
done_testing();
