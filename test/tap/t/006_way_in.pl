# Whatever happens to the ledger, its workers, its tables or the slots: somebody can log in and look (requirements A19, A24).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time);

my $server = Sluice->start('way_in', roles => [qw(app dba)], conf => { max_connections => 20, superuser_reserved_connections => 3 });
$server->run('CREATE ROLE boss SUPERUSER LOGIN');

# Somebody gets in and reads what is going on. The aim is two seconds; how long it took is told.
sub way_in {
  my ($name, %arg) = @_;
  local $Test::Builder::Level = $Test::Builder::Level + 1;
  my $started = time;
  my $wire = $server->try_connect($arg{role} // Sluice->superuser, tcp => $arg{tcp} // 0);
  ok($wire->logged_in, "$name: gets in") or diag(Sluice::Wire::describe($wire->error));
  my $count = $wire->logged_in ? $wire->query('SELECT count(*) FROM pg_stat_activity')->{rows}[0][0] : 0;
  cmp_ok($count, '>', 0, "$name: and can look");
  note(sprintf '%s: after %.2f s', $name, time - $started);
  $wire->close;
  return;
}

subtest 'way in: a full ledger' => sub {
  $server->apply({ serverSessionPermits => 4, classes => { interactive => { permits => 1, maxQueue => 3, queueDeadlineMs => $PATIENT } }, adminRoles => { dba => {} } });
  my @app = map { $server->connect('app') } 1 .. 4;
  $app[0]->run('BEGIN');
  $app[0]->run('SELECT 1');
  $_->send_query('SELECT 1') for @app[ 1 .. 3 ];
  ok($server->wait_waiters(3), 'sessions, permits and the queue are full');
  way_in('superuser on the Unix socket');
  way_in('superuser over TCP', role => 'boss', tcp => 1);
  way_in('admin role', role => 'dba');
  way_in('admin role over TCP', role => 'dba', tcp => 1);
  $app[0]->run('COMMIT');
  $_->finish for @app[ 1 .. 3 ];
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'way in: a policy that admits nobody' => sub {
  $server->apply({ serverSessionPermits => 0, adminReserve => 0, classes => { interactive => { permits => 0, maxQueue => 0 } } });
  is($server->try_connect('app')->error->{code}, '53300', 'ordinary logins are refused');
  way_in('superuser on the Unix socket');
  way_in('superuser over TCP', role => 'boss', tcp => 1);
  is($server->admin->code(Sluice::publish_sql($server->document(serverSessionPermits => 8))), '', 'and can publish a better one');
  is($server->admin->code(Sluice::activate_sql($server->{generation})), '', 'and activate it');
  ok($server->connect('app')->value('SELECT 1'), 'which is then in force');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'way in: every slot that PostgreSQL gives to ordinary roles is taken' => sub {
  $server->run(q{ALTER SYSTEM SET pg_sluice.enforcement = 'off'});
  $server->run('SELECT pg_reload_conf()');
  wait_until(sub { $server->status('enforcement') eq 'off' }, 'off');
  my @app;
  for (1 .. 40) {
    my $wire = $server->try_connect('app');
    last unless $wire->logged_in;
    push @app, $wire;
  }
  # Twenty slots, three of them reserved, and one has the way in of this test.
  is(scalar @app, 16, 'without enforcement ordinary roles take all but the reserved slots');
  way_in('superuser on the Unix socket');
  way_in('superuser over TCP', role => 'boss', tcp => 1);
  $server->run('ALTER SYSTEM RESET pg_sluice.enforcement');
  $server->run('SELECT pg_reload_conf()');
  $_->close for @app;
  ok(wait_until(sub { $server->status('enforcement') eq 'policy' }, 'policy'), 'enforcement is back');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'way in: stopped workers' => sub {
  $server->apply({ serverSessionPermits => 4, adminRoles => { dba => {} }, defaultClass => 'brief',
    classes => { brief => { permits => 1, queueDeadlineMs => 700, mayEnter => ['patient'] }, patient => { permits => 1, queueDeadlineMs => $PATIENT } } });
  my @worker = map { $server->status("${_}_pid") } qw(guard publisher);
  kill 'STOP', @worker;
  my @app = map { $server->connect('app') } 1 .. 3;
  $app[0]->run('BEGIN');
  $app[0]->run('SELECT 1');
  way_in('superuser on the Unix socket');
  way_in('superuser over TCP', role => 'boss', tcp => 1);
  way_in('admin role', role => 'dba');
  my $started = time;
  is($app[1]->query('SELECT 1')->{error}{code}, '53000', 'a waiter meets its own deadline without any worker');
  note(sprintf 'after %.2f s', time - $started);
  $app[0]->run('COMMIT');
  $_->run(q{SET pg_sluice.class = 'patient'}) for @app;
  $app[0]->run('BEGIN');
  $app[0]->run('SELECT 1');
  $app[1]->send_query('SELECT 1');
  $app[2]->send_query('SELECT 1');
  ok($server->wait_waiters(2), 'two wait');
  $app[2]->cancel;
  is($app[2]->finish->{error}{code}, '57014', 'a waiter can be cancelled without any worker');
  $app[0]->run('COMMIT');
  is($app[1]->finish->{error}, undef, 'a release grants without any worker');
  $server->set_and_hup('pg_sluice.enforcement' => q{'off'});
  ok(wait_until(sub { my $wire = $server->try_connect('app'); my $in = $wire->logged_in; $wire->close; $in }, 'login'), 'the switch works for logins without any worker');
  $server->set_and_hup('pg_sluice.enforcement' => q{'policy'});
  kill 'CONT', @worker;
  ok(wait_until(sub { $server->status(q{coalesce(array_to_string(alerts, '; '), '')}) !~ /guard|enforcement/ }, 'no alert'), 'the workers go on');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'way in: a corrupt policy row' => sub {
  my %damage = (
    'not a policy' => q{'{"nonsense": true}'}, 'a number' => q{'1'}, 'an array' => q{'[1, 2]'}, 'null' => q{'null'},
    'impossible limits' => q{jsonb_set(document, '{serverSessionPermits}', '4000000')}, 'negative' => q{jsonb_set(document, '{serverSessionPermits}', '-1')},
    'a class that is no object' => q{jsonb_set(document, '{executionClasses}', '{"interactive": 5}')}, 'deeply nested' => q{(repeat('[', 60) || repeat(']', 60))::jsonb},
    'too long' => q{to_jsonb(repeat('x', 300000))}, 'a huge number' => q{jsonb_set(document, '{generation}', repeat('9', 100)::jsonb)});
  for my $what (sort keys %damage) {
    $server->apply({ serverSessionPermits => 4 });
    $server->run("UPDATE sluice.policies SET document = $damage{$what} WHERE generation = $server->{generation}");
    $server->restart('immediate');
    my @app = map { $server->try_connect('app') } 1 .. 6;
    is(scalar(grep { $_->logged_in } @app), 6, "$what: nobody is refused by a policy that cannot be read");
    is($app[0]->value('SELECT 1'), 1, "$what: transactions run");
    ok(wait_until(sub { ($server->status('publisher_note') // '') ne '' }, 'note'), "$what: status says why there is no policy");
    $_->close for @app;
    is($server->admin->code(Sluice::publish_sql($server->document(serverSessionPermits => 6))), '', "$what: a new generation can be published");
    is($server->admin->code(Sluice::activate_sql($server->{generation}, over_limit => 'drain')), '', "$what: and activated");
    is($server->status('mode'), 'enforce', "$what: and is enforced");
    $server->ledger_is_zero("$what: the ledger is zero");
  }
};

subtest 'way in: a corrupt policy row under on_fault = refuse' => sub {
  $server->apply({ serverSessionPermits => 4, adminRoles => { dba => {} } });
  $server->run(qq{UPDATE sluice.policies SET document = '{"nonsense": true}' WHERE generation = $server->{generation}});
  $server->set_and_hup('pg_sluice.on_fault' => q{'refuse'});
  $server->restart('fast');
  way_in('superuser on the Unix socket');
  $server->set_and_hup('pg_sluice.on_fault' => q{'admit'});
  $server->run(Sluice::publish_sql($server->document(serverSessionPermits => 6)));
  $server->run(Sluice::activate_sql($server->{generation}, over_limit => 'drain'));
  ok(wait_until(sub { my $wire = $server->try_connect('app'); my $in = $wire->logged_in; $wire->close; $in }, 'login'), 'everybody gets in again');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('way in: nothing crashed');
done_testing();
