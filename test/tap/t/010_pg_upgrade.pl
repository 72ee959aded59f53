# pg_upgrade meets nobody's limits, with and without the library preloaded in the new cluster (case F22).
use strict;
use warnings;
use Cwd ();
use File::Spec;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sluice;
use Test::More;

my $old = Sluice->start('old', roles => ['app'], conf => { max_connections => 20 });
$old->run('CREATE TABLE kept AS SELECT 42 AS i');
# No session at all but the reserve: a server that enforced this would not let pg_upgrade in over TCP or as a plain role.
my $generation = $old->apply({ serverSessionPermits => 0, classes => { interactive => 0 } });
is($old->try_connect('app')->error->{code}, '53300', 'case F22: the old server admits nobody');
$old->stop;

my ($bin) = map { s/\s+$//r } `pg_config --bindir`;
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;

sub upgrade {
  my (@option) = @_;
  # pg_upgrade writes its logs where it is started.
  my ($from, $to) = map { File::Spec->rel2abs($_->data_dir) } $old, $new;
  my $home = Cwd::getcwd();
  chdir $new->basedir or die $new->basedir . ": $!";
  my ($out, $err);
  my $ok = IPC::Run::run([ 'pg_upgrade', '-b', $bin, '-B', $bin, '-d', $from, '-D', $to, '-s', $new->host,
      '-p', $old->port, '-P', $new->port, @option ], '>', \$out, '2>', \$err);
  chdir $home or die "$home: $!";
  diag($out . $err) unless $ok;
  return $ok;
}

for my $preload ('pg_sluice', '') {
  $new->append_conf('postgresql.conf', "shared_preload_libraries = '$preload'\npg_sluice.database = 'postgres'\n");
  ok(upgrade('--check'), 'case F22: pg_upgrade --check passes ' . ($preload ? 'with' : 'without') . ' the library preloaded in the new cluster');
}
$new->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_sluice'\nmax_connections = 20\nlisten_addresses = '127.0.0.1'\n");
ok(upgrade(), 'case F22: pg_upgrade runs to its end');
$new->start;
my $upgraded = Sluice->wrap($new, label => 'old');
is($upgraded->value('SELECT i FROM kept'), 42, 'case F22: the data is there');
is($upgraded->value('SELECT max(generation) FROM sluice.policies'), $generation, 'case F22: so is the policy');
ok(wait_until(sub { ($upgraded->status('guard_pid') // 0) > 0 && ($upgraded->status('publisher_pid') // 0) > 0 }, 'workers'), 'case F22: the workers run');
# The label is another one here (cluster_name "new"): a policy that was made for elsewhere is never enforced.
ok(wait_until(sub { ($upgraded->status('generation') // 0) == $generation }, 'policy loaded'), 'case F22: the policy is loaded');
is($upgraded->status('mode'), 'shadow', 'case F22: but under another label it stays in shadow');
ok($upgraded->try_connect('app')->logged_in, 'case F22: so that nobody is locked out');
$upgraded->ledger_is_zero('case F22: the ledger is zero');
done_testing();
