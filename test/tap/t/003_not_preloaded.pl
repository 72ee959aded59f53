# Without shared_preload_libraries everything says what to do, and the server lives on (case F19).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('plain', roles => ['app'], conf => { max_connections => 20 });
$server->apply({});

# The extension exists, then the line is taken out of the file.
$server->set_and_hup(shared_preload_libraries => q{''});
$server->restart;

sub refused {
  my ($wire, $sql, $name) = @_;
  local $Test::Builder::Level = $Test::Builder::Level + 1;
  my $error = $wire->query($sql)->{error};
  is($error ? $error->{code} : 'no error', '55000', "$name: 55000");
  like($error ? $error->{hint} // '' : '', qr/shared_preload_libraries/, "$name: the hint names the line to add");
  return;
}

subtest 'case F19: every SQL function and view of the extension' => sub {
  my %sample = (jsonb => q{'{}'::jsonb}, bigint => '1', integer => '1', text => q{'x'}, boolean => 'false', name => q{'x'},
    interval => q{'1 s'}, uuid => q{'00000000-0000-0000-0000-000000000001'}, oid => '1', 'double precision' => '1');
  my $functions = $server->rows(q{SELECT p.proname, (SELECT coalesce(string_agg(format_type(t, NULL), ',' ORDER BY n), '')
      FROM unnest(p.proargtypes) WITH ORDINALITY a(t, n)) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
      WHERE p.pronamespace = 'sluice'::regnamespace AND l.lanname = 'c'});
  cmp_ok(scalar @$functions, '>', 5, 'there are functions');
  for my $function (@$functions) {
    my ($name, $types) = @$function;
    my @argument = map { $sample{$_} // "NULL::$_" } split /,/, $types;
    refused($server->admin, "SELECT * FROM sluice.$name(" . join(', ', @argument) . ')', $name);
  }
  for my $view (qw(status classes tenants sessions tickets refusals events metrics)) {
    refused($server->admin, "SELECT * FROM sluice.$view", "view $view");
  }
  ok($server->connect('app')->value('SELECT 1'), 'the server is alive');
};

subtest 'case F19: CREATE EXTENSION, LOAD, session_preload_libraries' => sub {
  $server->run('CREATE DATABASE fresh');
  my $fresh = $server->connect(Sluice->superuser, database => 'fresh');
  refused($fresh, 'CREATE EXTENSION pg_sluice', 'CREATE EXTENSION');
  is($fresh->value('SELECT count(*) FROM pg_extension'), 1, 'CREATE EXTENSION left nothing');
  is($fresh->value(q{SELECT count(*) FROM pg_namespace WHERE nspname = 'sluice'}), 0, 'not even its schema');
  refused($fresh, q{LOAD 'pg_sluice'}, 'LOAD');
  refused($fresh, q{LOAD 'pg_sluice'}, 'LOAD once more');
  is($fresh->value('SELECT 1'), 1, 'the session goes on');
  for my $setting (qw(session_preload_libraries)) {
    $server->run("ALTER ROLE app SET $setting = 'pg_sluice'");
    my $session = $server->try_connect('app');
    ok($session->logged_in, "$setting: nobody is locked out");
    like(join(' ', map { $_->{message} } @{ $session->last_result->{notices} }), qr/shared_preload_libraries/, "$setting: a warning says why it does nothing");
    is($session->value('SELECT 1'), 1, "$setting: and the session works");
    $server->run("ALTER ROLE app RESET $setting");
  }
  is($server->admin->code('DROP EXTENSION pg_sluice'), '', 'the extension can be dropped without the library being preloaded');
};

my @bad = grep { /PANIC|was terminated by signal/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($server->node->logfile);
is("@bad", '', 'case F19: nothing crashed');
done_testing();
