# What the stress tests share: the tables, the client's processes, and the comparison of what clients were told with what is there.
package Sluice::Stress;

use strict;
use warnings;

use Exporter qw(import);
use FindBin;
use JSON::PP ();
use Sluice;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(prepare_tables start_load load_is_over load_may_end check_load check_work);

my @ROLES = qw(amber blue coral);

sub roles { return @ROLES; }

sub prepare_tables {
  my ($server) = @_;
  $server->run(q{CREATE TABLE work (id bigint PRIMARY KEY, worker int); CREATE TABLE hot (id int PRIMARY KEY, n int);
    INSERT INTO hot SELECT g, 0 FROM generate_series(0, 19) g; CREATE TABLE scratch (i int);
    CREATE FUNCTION plus_rows(int) RETURNS bigint LANGUAGE sql AS 'SELECT $1 + count(*) FROM hot';
    CREATE PROCEDURE commits(int) LANGUAGE plpgsql AS 'BEGIN FOR i IN 1 .. $1 LOOP UPDATE hot SET n = n + 1 WHERE id = 19; COMMIT; END LOOP; END'});
  $server->run('GRANT ALL ON work, hot, scratch TO ' . join ', ', @ROLES);
  return;
}

# Starts the client; it goes on by itself until it has done its transactions and load_may_end() was called.
sub start_load {
  my ($server, %arg) = @_;
  my $folder = $server->node->basedir . '/notes';
  mkdir $folder;
  my $function = $server->value(q{SELECT 'plus_rows(int)'::regprocedure::oid});
  my @command = ('python3', "$FindBin::RealBin/../stress/client.py", '--socket', $server->socket_dir, '--port', $server->port,
    '--admin', scalar($server->superuser), '--roles', join(',', @ROLES), '--notes', $folder, '--function', $function, '--also-until', "$folder.enough", %arg);
  my $output = "$folder.out";
  my $pid = fork;
  if (!$pid) {
    open STDOUT, '>', $output or die;
    exec @command or die;
  }
  return { pid => $pid, output => $output, folder => $folder, status => undef };
}

# The test has met under load what it had to meet.
sub load_may_end {
  my ($load) = @_;
  open my $file, '>', "$load->{folder}.enough" or die "$load->{folder}.enough: $!";
  close $file;
  return;
}

sub load_is_over {
  my ($load) = @_;
  return 1 if defined $load->{status};
  return 0 if waitpid($load->{pid}, 1) == 0;
  $load->{status} = $?;
  return 1;
}

# Tests that the load ended well and met no answer but the ones it expects; returns what it did.
sub check_load {
  my ($load) = @_;
  sleep 0.05 until load_is_over($load);
  is($load->{status}, 0, 'the load came to its end');
  my $summary = eval { JSON::PP::decode_json(PostgreSQL::Test::Utils::slurp_file($load->{output})) } // {};
  diag(JSON::PP->new->canonical->encode($summary));
  is_deeply($summary->{unexpected}, {}, 'no answer that no one would expect');
  return $summary;
}

sub ids { my ($load, $kind) = @_; return map { split /\n/, PostgreSQL::Test::Utils::slurp_file($_) } glob "$load->{folder}/*.$kind"; }

# What was acknowledged is there; what was refused or undone is not.
sub check_work {
  my ($server, $load) = @_;
  $server->run("ROLLBACK PREPARED '$_->[0]'") for @{ $server->rows('SELECT gid FROM pg_prepared_xacts') };
  my %there = map { $_->[0] => 1 } @{ $server->rows('SELECT id FROM work') };
  my @acknowledged = ids($load, 'acknowledged');
  my @undone = ids($load, 'undone');
  is(scalar(grep { !$there{$_} } @acknowledged), 0, scalar(@acknowledged) . ' acknowledged rows are all there');
  is(scalar(grep { $there{$_} } @undone), 0, 'of ' . scalar(@undone) . ' refused or undone rows none is there');
  return;
}

1;
