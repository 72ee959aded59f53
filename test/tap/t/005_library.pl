# The library file is replaced under a running server, or a second build is loaded beside it (case F20).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use File::Copy qw(copy);
use File::Spec;
use PostgreSQL::Test::Utils ();
use Sluice;
use Test::More;

# The server loads its library from a directory of this test, so that no other test meets the replaced file.
my $directory = File::Spec->rel2abs(PostgreSQL::Test::Utils::tempdir());
my ($installed) = map { s/\s+$//r } `pg_config --pkglibdir`;
my $library = "$directory/pg_sluice.so";
copy("$installed/pg_sluice.so", $library) or die "$library: $!";
chmod 0755, $library;

my $server = Sluice->start('library', roles => ['app'], conf => {
    max_connections => 20, dynamic_library_path => "'$directory:\$libdir'", shared_preload_libraries => q{'pg_sluice'} }, extension => 0);

sub bytes_of { my ($file) = @_; return PostgreSQL::Test::Utils::slurp_file($file); }

# Another build: the same library with another build stamp. The stamp is "version-hash-commit" in a constant of its own.
sub other_build {
  my ($file) = @_;
  my $bytes = bytes_of("$installed/pg_sluice.so");
  my $changed = $bytes =~ s/(\x00)(\d+\.\d+-)([0-9a-f]{8})((?:-[0-9A-Za-z.]*)?\x00)/$1 . $2 . reverse($3) . $4/ge;
  cmp_ok($changed, '>=', 1, 'the build stamp was found in the library');
  unlink $file;
  open my $out, '>:raw', $file or die "$file: $!";
  print $out $bytes;
  close $out;
  chmod 0755, $file;
  return;
}

# The SQL objects, bound to that very file (an extension's own are bound to $libdir).
my ($share) = map { s/\s+$//r } `pg_config --sharedir`;
my $script = bytes_of("$share/extension/pg_sluice--1.0.sql");
$script =~ s/^\\echo.*$//mg;
$script =~ s/^SELECT pg_catalog\.pg_extension_config_dump.*$//mg;
$script =~ s/'MODULE_PATHNAME'/'$directory\/pg_sluice'/g;
$server->run($script);

subtest 'case F20: another build loaded by a new backend says so, and the server lives on' => sub {
  my $other = "$directory/other_build.so";
  other_build($other);
  for my $round (1 .. 3) {
    my $session = $server->connect(Sluice->superuser);
    my $error = $session->query("LOAD '$other'")->{error};
    is($error->{code}, '55000', "round $round: 55000");
    like($error->{message}, qr/another build/, "round $round: with the reason");
    like($error->{hint}, qr/[Rr]estart/, "round $round: and what to do");
    my ($running, $loaded) = ($error->{detail} // '') =~ /started with (\S+), this library is (\S+?)\.?$/;
    isnt($running, $loaded, "round $round: both stamps are named");
    is($session->value('SELECT 1'), 1, "round $round: the session goes on");
    $error = $session->query("CREATE FUNCTION pg_temp.other() RETURNS SETOF record LANGUAGE c AS '$other', 'sluice_status'")->{error};
    is($error->{code}, '55000', "round $round: a function of the other build is refused as well");
    $session->close;
  }
  ok($server->connect('app')->value('SELECT 1'), 'the server is alive');
};

subtest 'case F20: the file is replaced in its place; the running server goes on with what it loaded' => sub {
  my $session = $server->connect('app');
  $session->run('BEGIN');
  $session->run('SELECT 1');
  other_build($library);
  my $newcomer = $server->connect('app');
  is($newcomer->value('SELECT 1'), 1, 'a new backend works');
  is($session->value('SELECT 2'), 2, 'an old one goes on');
  $session->run('COMMIT');
  $_->close for $session, $newcomer;
  # A worker that is started again loads what the postmaster has, not the new file.
  my $guard = $server->status('guard_pid');
  kill 'TERM', $guard;
  my $now;
  ok(wait_until(sub { $now = $server->status('guard_pid'); $now && $now != $guard }, 'guard back'), 'the guard comes back');
  ok($server->connect('app')->value('SELECT 1'), 'and the server admits as before');
};

subtest 'case F20: after a restart the new build runs' => sub {
  $server->restart;
  is($server->connect('app')->value('SELECT 1'), 1, 'the server runs the new build');
  my $other = "$directory/other_build.so";
  unlink $other;
  copy("$installed/pg_sluice.so", $other) or die "$other: $!";
  my $error = $server->connect(Sluice->superuser)->query("LOAD '$other'")->{error};
  is($error->{code}, '55000', 'and now the old file is the other build');
};

# A package of pg_sluice outlives minor updates of the server, so this is the usual case: it works, and the log says what met.
subtest 'case F20: a library that was built for another minor version of the server' => sub {
  my $bytes = bytes_of("$installed/pg_sluice.so");
  my ($running) = $server->value('SHOW server_version') =~ /^(\d+(?:\.\d+|\w+))/;
  # Another number of the same length: the last digit is another one.
  my $other = $running =~ s/(\d)$/($1 + 1) % 10/er;
  my $changed = $bytes =~ s/built for PostgreSQL \Q$running\E(?=[\0 ])/built for PostgreSQL $other/g;
  cmp_ok($changed, '>=', 1, 'the library says what it was built for');
  my @told = grep { /pg_sluice was built for/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($server->node->logfile);
  is(scalar(@told), 0, 'of its own minor version it says nothing');
  unlink $library;
  open my $out, '>:raw', $library or die "$library: $!";
  print $out $bytes;
  close $out;
  chmod 0755, $library;
  $server->set_and_hup(log_min_messages => 'log');
  $server->restart;
  like(PostgreSQL::Test::Utils::slurp_file($server->node->logfile), qr/LOG:  pg_sluice was built for PostgreSQL \Q$other\E and runs in \Q$running\E/, 'the log says so at the start');
  my $session = $server->connect('app');
  is($session->value('SELECT 1'), 1, 'and the server works');
  is($server->value('SELECT count(*) FROM sluice.sessions'), 1, 'with its ledger');
  is(scalar(@{ $server->discrepancies }), 0, 'which balances');
};

subtest 'case F20: a library of another major version of the server' => sub {
  my $foreign = "$directory/foreign.so";
  my $bytes = bytes_of("$installed/pg_sluice.so");
  my $version = $server->value(q{SELECT (current_setting('server_version_num')::int / 100)::text});
  # Pg_magic_struct starts with its length and the major version * 100.
  my $magic = pack('l', $version);
  my $at = -1;
  my $changed = 0;
  while (($at = index($bytes, $magic, $at + 1)) >= 0) {
    my $length = unpack('l', substr($bytes, $at - 4, 4));
    next unless $length > 20 && $length < 256;
    substr($bytes, $at, 4) = pack('l', $version - 100);
    $changed++;
  }
  cmp_ok($changed, '>=', 1, 'the version block was found');
  open my $out, '>:raw', $foreign or die "$foreign: $!";
  print $out $bytes;
  close $out;
  chmod 0755, $foreign;
  my $error = $server->connect(Sluice->superuser)->query("LOAD '$foreign'")->{error};
  like($error->{message}, qr/incompatible library/, 'is refused by PostgreSQL');
  ok($server->connect('app')->value('SELECT 1'), 'the server is alive');
};

my @bad = grep { /PANIC|was terminated by signal|pg_sluice: broken invariant/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($server->node->logfile);
is("@bad", '', 'case F20: nothing crashed');
done_testing();
