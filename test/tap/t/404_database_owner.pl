# PostgreSQL caches a role's memberships; asked at login, before the database is known, that cache lacks pg_database_owner. After a
# memberOf rule was evaluated the owner of a database still has the rights of its owner.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('owner', roles => [qw(owner etl other)], conf => { max_connections => 30 });
$server->run('CREATE DATABASE owned OWNER owner');
my $admin = Sluice::Wire->connect(host => $server->socket_dir, port => $server->port, user => $server->superuser, database => 'owned');
$admin->run('REVOKE ALL ON SCHEMA public FROM PUBLIC; CREATE TABLE private (i int); ALTER TABLE private OWNER TO pg_database_owner');

my %policy = (
  classes => { interactive => 10, batch => 10 }, defaultClass => 'interactive',
  assign => [ { memberOf => 'pg_monitor', class => 'batch' }, { memberOf => 'etl', class => 'batch' } ]);

# All of it must hold for the owner and none of it for another role.
sub check_owner {
  my ($session, $name) = @_;
  is($session->value(q{SELECT pg_has_role('pg_database_owner', 'member')}), 't', "$name: is a member of pg_database_owner");
  is($session->value(q{SELECT pg_has_role('pg_database_owner', 'usage')}), 't', "$name: has its rights");
  is($session->code('CREATE TABLE public.made (i int)'), '', "$name: may create in the schema public");
  is($session->code('INSERT INTO private VALUES (1)'), '', "$name: may use what pg_database_owner owns");
  $session->query('DROP TABLE public.made');
  return;
}

sub check_other {
  my ($session, $name) = @_;
  is($session->value(q{SELECT pg_has_role('pg_database_owner', 'member')}), 'f', "$name: another role is not a member");
  is($session->code('CREATE TABLE public.taken (i int)'), '42501', "$name: and may not create");
  return;
}

for my $member (0, 1) {
  my $who = $member ? 'a member of etl' : 'a member of nothing';
  $server->run($member ? 'GRANT etl TO owner' : 'REVOKE etl FROM owner');
  subtest "the owner, $who" => sub {
    $server->apply(\%policy, over_limit => 'drain');
    my ($session, $other) = ($server->connect('owner', database => 'owned'), $server->connect('other', database => 'owned'));
    # The very first statement needs the rights.
    is($server->connect('owner', database => 'owned')->code('INSERT INTO private VALUES (0)'), '', 'with the first statement after login');
    check_owner($session, 'after login');
    check_other($other, 'after login');
    is($server->value(q{SELECT class FROM sluice.sessions WHERE pid = } . $session->pid), $member ? 'batch' : 'interactive', 'the rule was evaluated');
    $server->apply({ %policy, retry => { baseMs => 300 } }, over_limit => 'drain');
    check_owner($session, 'after a policy change');
    check_other($other, 'after a policy change');
    # Asked, cached, changed, asked again.
    $session->value(q{SELECT pg_has_role('etl', 'member')});
    $server->apply({ %policy, retry => { baseMs => 400 } }, over_limit => 'drain');
    check_owner($session, 'after another one with a filled cache');
    is($session->value(q{SELECT pg_has_role('etl', 'member')}), $member ? 't' : 'f', 'other memberships are right as well');
    my $fresh = $server->connect('owner', database => 'owned');
    $fresh->run('BEGIN');
    check_owner($fresh, 'in a transaction');
    $fresh->run('ROLLBACK');
    $server->ledger_is_zero('the ledger is zero');
  };
}

subtest 'owning another database gives nothing here' => sub {
  my $session = $server->connect('owner', database => 'postgres');
  is($session->value(q{SELECT pg_has_role('pg_database_owner', 'member')}), 'f', 'not the owner of this database');
  $server->apply({ %policy, retry => { baseMs => 500 } }, over_limit => 'drain');
  is($session->value(q{SELECT pg_has_role('pg_database_owner', 'member')}), 'f', 'nor after a policy change');
  $server->ledger_is_zero('the ledger is zero');
};

$admin->close;
$server->server_log_is_clean('nothing crashed');
done_testing();
