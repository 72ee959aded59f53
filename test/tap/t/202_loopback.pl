# Clients inside the server (dblink, postgres_fdw) are admitted by the same rules as everybody else (case A5; requirement A7).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time);

my $server = Sluice->start('loopback', roles => [qw(app other)], conf => { max_connections => 30 });
my ($dir, $port) = ($server->socket_dir, $server->port);
my $target = "host=$dir port=$port dbname=postgres";
$server->run('CREATE EXTENSION dblink');
$server->run('CREATE EXTENSION postgres_fdw');
$server->run("CREATE SERVER self FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$dir', port '$port', dbname 'postgres')");
$server->run("CREATE USER MAPPING FOR app SERVER self OPTIONS (user 'app', password_required 'false')");
$server->run('CREATE TABLE local_table AS SELECT g AS i FROM generate_series(1, 10) g');
$server->run("CREATE FOREIGN TABLE far_table (i int) SERVER self OPTIONS (table_name 'local_table')");
$server->run('GRANT SELECT ON local_table, far_table TO app; GRANT USAGE ON FOREIGN SERVER self TO app');
$server->run("GRANT EXECUTE ON FUNCTION dblink_connect_u(text), dblink_connect_u(text, text) TO app");
$server->apply({ serverSessionPermits => 3, classes => { interactive => { permits => 2, queueDeadlineMs => 500 } } });

my @app = map { $server->connect('app') } 1 .. 2;
is($app[0]->value("SELECT dblink_connect_u('link', '$target user=app')"), 'OK', 'case A5: a dblink session is admitted while there is room');
is($server->value(q{SELECT count(*) FROM sluice.sessions WHERE role = 'app'}), 3, 'case A5: the dblink session is in the ledger like any other');

my $refused = $app[1]->query("SELECT dblink_connect_u('more', '$target user=app')");
is($refused->{error}{code}, '08001', 'case A5: a dblink session beyond the limit is refused');
like($refused->{error}{detail} // '', qr/reason=session_limit/, 'case A5: the refusal of the ledger reaches the caller of dblink');

my $direct = $server->try_connect('app');
is($direct->error->{code}, '53300', 'case A7: a direct login beyond the limit is refused by the same ledger');

# A server-side retry loop without a pause: it gets its answer each time and never more sessions than the limit.
my $started = time;
my $sessions = $server->value('SELECT count(*) FROM sluice.sessions');
my $loop = $app[1]->query(<<"SQL");
DO \$\$
DECLARE refused int := 0;
BEGIN
  FOR i IN 1 .. 100 LOOP
    BEGIN
      PERFORM public.dblink_connect_u('storm' || i, '$target user=app');
    EXCEPTION WHEN OTHERS THEN refused := refused + 1;
    END;
  END LOOP;
  ASSERT refused = 100, 'refused ' || refused;
END \$\$
SQL
is($loop->{error}, undef, 'case A5: each of 100 attempts of a retry loop inside the server is refused') or diag(Sluice::Wire::describe($loop->{error}));
is($server->value('SELECT count(*) FROM sluice.sessions'), $sessions, 'case A5: the retry loop left no session behind');
is($server->real_sessions, 3, 'case A5: no fork storm: as many backends as permits');

$app[0]->run("SELECT dblink_disconnect('link')");
ok($server->wait_sessions(2), 'case A5: the permit of a closed dblink session is back');
is($app[1]->value('SELECT sum(i) FROM far_table'), 55, 'case A5: postgres_fdw is admitted while there is room');
is($server->value('SELECT count(*) FROM pg_stat_activity WHERE backend_type = \'client backend\' AND application_name = \'postgres_fdw\''), 1,
  'case A5: one foreign session is open');
my $third = $app[0]->query('SELECT sum(i) FROM far_table');
is($third->{error}{code}, '08001', 'case A5: a second foreign session is refused');
$app[1]->close;
ok($server->wait_sessions(1), 'case A5: the foreign session left with its owner');

# Execution permits: the outer transaction keeps its permit while the inner one waits for the last; the deadline ends the cycle.
my $holder = $server->connect('app');
$holder->run('BEGIN');
$holder->run('SELECT 1');
$app[0]->run("SELECT dblink_connect_u('inner', '$target user=app')");
$started = time;
my $inner = $app[0]->query("SELECT * FROM dblink('inner', 'SELECT 1') AS t(i int)");
is($inner->{error}{code}, '53000', 'case A5: a transaction that waits for itself through dblink ends at its queue deadline');
note(sprintf 'after %.2f s', time - $started);
$holder->run('COMMIT');
is($app[0]->value("SELECT i FROM dblink('inner', 'SELECT 1') AS t(i int)"), 1, 'case A5: the same link works once a permit is free');

# A role that opens a session for each request, without a pause: its rate is its own, and nobody else's.
$server->close_all;
$server->wait_sessions(0);
my $generation = $server->apply({ roleCaps => { app => { connectsPerSecond => 2 } }, retry => { baseMs => 100 } });
my ($opened, $last) = (0, undef);
$started = time;
# A machine that takes half a second for a login is below the rate; then it is tried again.
while (!$last && time < $started + 60) {
  my $wire = $server->try_connect('app');
  if ($wire->logged_in) { $opened++; $wire->close; } else { $last = $wire->error; }
}
my $took = time - $started;
cmp_ok($opened, '>=', 2, 'case A5: a second of sessions may be opened at once');
cmp_ok($opened, '<=', 2 + 2 * $took, 'case A5: and no more than the rate') or diag("$opened in $took s");
is($last->{code}, '53300', 'case A5: who is faster is refused') or diag(Sluice::Wire::describe($last));
like($last->{detail} // '', qr/^sluice reason=role_connect_rate retry=after retry_after_ms=(?:1\d\d|200) rule=roleCaps\.app\.connectsPerSecond used=2 limit=2 class=interactive tenant=app generation=$generation$/,
  'case A5: with the rate in DETAIL');
ok($server->connect('other'), 'case A5: another role has a rate of its own');
$sessions = $server->value(q{SELECT count FROM sluice.unavailable WHERE source = 'sessions' AND reason = 'role_connect_rate'});
cmp_ok($sessions, '>=', 1, 'case A5: the refusals are counted by their reason');
# Refused attempts cost nothing: a loop without a pause gets its rate.
($opened, $started) = (0, time);
while ($opened < 4) { my $wire = $server->try_connect('app'); $opened++ if $wire->logged_in; $wire->close; }
$took = time - $started;
cmp_ok($took, '>=', 1.4, 'case A5: four more take half a second each');
is(scalar(grep { $_->[0] eq "role's connects" && $_->[2] eq 'roleCaps.app.connectsPerSecond' } @{ $server->rows(q{SELECT step, outcome, rule FROM sluice.explain('app', 'postgres')}) }), 1,
  'case A5: explain names the rule');

$server->ledger_is_zero('case A5: the ledger is zero at the end');
$server->server_log_is_clean('case A5: nothing crashed');
done_testing();
