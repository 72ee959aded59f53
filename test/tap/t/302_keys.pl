# Limits of different databases and roles never share a counter; a full table is a clean overflow (case F2; requirement A5).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('keys', roles => ['app'], conf => { max_connections => 60, 'pg_sluice.max_tenants' => 256 });
$server->run("CREATE DATABASE db_$_") for qw(a b);

subtest 'case F2: limits of two databases do not share a counter' => sub {
  $server->apply({
      serverSessionPermits => 40, tenantKey => 'database', tenants => { db_a => { maxInflight => 2 }, db_b => { maxInflight => 1 }, '*' => {} },
      classes => { interactive => { permits => 10, queueDeadlineMs => $PATIENT } } });
  my @a = map { $server->connect('app', database => 'db_a') } 1 .. 3;
  my @b = map { $server->connect('app', database => 'db_b') } 1 .. 2;
  for my $holder (@a[ 0, 1 ]) { $holder->run('BEGIN'); $holder->run('SELECT 1'); }
  is($b[0]->value('SELECT 1'), 1, 'db_b runs while db_a is at its limit');
  $a[2]->send_query('SELECT 3');
  ok($server->wait_waiters(1), 'the third of db_a waits');
  $b[0]->run('BEGIN');
  is($b[0]->value('SELECT 1'), 1, 'db_b has its own permit');
  $b[1]->send_query('SELECT 2');
  ok($server->wait_waiters(2), 'the second of db_b waits');
  $b[0]->run('COMMIT');
  is($b[1]->finish->{rows}[0][0], 2, 'a release in db_b grants the waiter of db_b');
  ok(!$a[2]->readable(0.3), 'and not that of db_a');
  $a[0]->run('COMMIT');
  is($a[2]->finish->{rows}[0][0], 3, 'a release in db_a grants the waiter of db_a');
  $a[1]->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F2: 200 roles have 200 counters' => sub {
  $server->run(join ';', map { "CREATE ROLE tenant_$_ LOGIN" } 1 .. 200);
  $server->apply({ serverSessionPermits => 40, tenants => { '*' => { maxInflight => 2 } } });
  my %before = map { @$_ } @{ $server->rows(q{SELECT tenant, sum(granted) FROM sluice.tenants WHERE tenant LIKE 'tenant_%' GROUP BY 1}) };
  for my $number (1 .. 200) {
    my $session = $server->connect("tenant_$number");
    $session->run('SELECT 1') for 1 .. 1 + $number % 3;
    $session->close;
  }
  my %after = map { @$_ } @{ $server->rows(q{SELECT tenant, sum(granted) FROM sluice.tenants WHERE tenant LIKE 'tenant_%' GROUP BY 1}) };
  my @wrong = grep { ($after{"tenant_$_"} // 0) - ($before{"tenant_$_"} // 0) != 1 + $_ % 3 } 1 .. 200;
  is("@wrong", '', 'each role has its own counter with exactly its own transactions');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F2: a full tenant table is a clean overflow' => sub {
  my $small = Sluice->start('overflow', roles => [ map { "role_$_" } 1 .. 30 ], conf => { max_connections => 60, 'pg_sluice.max_tenants' => 16 });
  $small->apply({ serverSessionPermits => 40, tenants => { '*' => { maxInflight => 3 }, role_1 => { maxInflight => 1 } }, classes => { interactive => 20 } });
  my @session = map { $small->try_connect("role_$_") } 1 .. 30;
  is(scalar(grep { $_->logged_in } @session), 30, 'newcomers are admitted although the table is full');
  is(scalar(grep { ($_->value('SELECT 1') // 0) == 1 } @session), 30, 'and run their statements');
  # The overflow row is one tenant under "*": its limit of three holds for the newcomers together, and nobody else is mixed up.
  my @newcomers = @session[ 20 .. 25 ];
  for my $newcomer (@newcomers[ 0 .. 2 ]) { $newcomer->run('BEGIN'); $newcomer->run('SELECT 1'); }
  $newcomers[3]->send_query('SELECT 4');
  ok($small->wait_waiters(1), 'the overflow row has the limit of "*"');
  is($session[0]->value('SELECT 1'), 1, 'a tenant with a row of its own is not held up');
  $newcomers[0]->run('COMMIT');
  is($newcomers[3]->finish->{rows}[0][0], 4, 'and a release in the overflow row grants its waiter');
  $_->run('COMMIT') for @newcomers[ 1, 2 ];
  cmp_ok($small->status('tenant_overflows'), '>', 0, 'the overflow is counted');
  $small->ledger_is_zero('the ledger is zero');
  $small->server_log_is_clean('nothing crashed');
};

$server->server_log_is_clean('case F2: nothing crashed');
done_testing();
