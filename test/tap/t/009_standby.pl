# A hot standby admits by the replicated policy, writes nothing, and goes on after promotion under a new epoch (case F23).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils ();
use Sluice;
use Test::More;

my $primary = Sluice->start('primary', roles => ['app'], streaming => 1, conf => { max_connections => 30, 'pg_sluice.label' => q{'orders'} });
$primary->{name} = 'orders';
my $write = $primary->apply({ serverSessionPermits => 10, classes => { interactive => { permits => 2, queueDeadlineMs => 300 } } });
my $read = $primary->apply({ server_role => 'read', serverSessionPermits => 5, classes => { interactive => { permits => 1, queueDeadlineMs => 300 } } });
is($primary->status('generation'), $write, 'case F23: the primary is ruled by the write policy');
$primary->run('CREATE TABLE t AS SELECT 1 AS i; GRANT ALL ON t TO app');

$primary->node->backup('copy');
my $node = PostgreSQL::Test::Cluster->new('standby');
$node->init_from_backup($primary->node, 'copy', has_streaming => 1);
$node->start;
my $standby = Sluice->wrap($node, label => 'orders');
$primary->node->wait_for_catchup($node, 'replay', $primary->node->lsn('insert'));

ok(wait_until(sub { ($standby->status('generation') // 0) == $read }, 'read policy'), 'case F23: the standby is ruled by the read policy');
is($standby->status('mode'), 'enforce', 'case F23: and enforces it');
is($standby->value('SELECT pg_is_in_recovery()'), 't', 'case F23: while it is in recovery');

subtest 'case F23: admission works on the standby' => sub {
  my @session = map { $standby->try_connect('app') } 1 .. 6;
  is(scalar(grep { $_->logged_in } @session), 5, 'session permits of the read policy');
  $session[0]->run('BEGIN');
  is($session[0]->value('SELECT i FROM t'), 1, 'a transaction runs');
  my $refused = $session[1]->query('SELECT i FROM t');
  is($refused->{error}{code}, '53000', 'the next one waits and meets its deadline');
  is(detail_of($refused->{error})->{generation}, $read, 'under the read generation');
  is($session[0]->query('INSERT INTO t VALUES (2)')->{error}{code}, '25006', 'writes are refused by PostgreSQL as ever');
  $session[0]->run('ROLLBACK');
  is($standby->admin->query(Sluice::publish_sql($standby->document))->{error}{code}, '25006', 'publishing on a standby is refused');
  $standby->ledger_is_zero('the ledger is zero');
};

subtest 'case F23: a policy published on the primary reaches the standby' => sub {
  $primary->{generation} = $read;
  $read = $primary->apply({ server_role => 'read', serverSessionPermits => 4, classes => { interactive => { permits => 1, queueDeadlineMs => 300 } } });
  ok(wait_until(sub { $standby->status('generation') == $read }, 'new read policy'), 'the publisher of the standby sees it');
  my @session = map { $standby->try_connect('app') } 1 .. 5;
  is(scalar(grep { $_->logged_in } @session), 4, 'and it is enforced');
  $standby->ledger_is_zero('the ledger is zero');
};

my $errors = grep { /ERROR|FATAL/ && /publisher|guard/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($node->logfile);
is($errors, 0, 'case F23: no worker fails in recovery');

subtest 'case F23: promotion' => sub {
  my $open = $standby->connect('app');
  my $epoch = $standby->status('epoch');
  $primary->stop('immediate');
  $standby->node->promote;
  ok(wait_until(sub { $standby->value('SELECT pg_is_in_recovery()') eq 'f' }, 'promoted'), 'promoted');
  ok(wait_until(sub { $standby->status('generation') == $write }, 'write policy'), 'the write policy rules after promotion');
  is($open->value('SELECT i FROM t'), 1, 'open sessions go on');
  is($open->code('INSERT INTO t VALUES (2)'), '', 'and may write now');
  $standby->{generation} = $read;
  my $next = $standby->apply({ serverSessionPermits => 3 });
  is($standby->status('generation'), $next, 'publishing works on the new primary');
  my @session = map { $standby->try_connect('app') } 1 .. 3;
  is(scalar(grep { $_->logged_in } @session), 2, 'and counts the sessions from before');
  $standby->ledger_is_zero('the ledger is zero');
};

$standby->server_log_is_clean('case F23: nothing crashed');
done_testing();
