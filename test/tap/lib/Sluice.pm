# A private PostgreSQL server with pg_sluice, for one test file: starts it, publishes policies, opens wire-level sessions, and
# checks at the end of each test that the ledger balances.
package Sluice;

use strict;
use warnings;

use Carp qw(croak confess);
use Exporter qw(import);
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Scalar::Util qw(weaken);
use Sluice::Wire;
use Test::More;
use Time::HiRes qw(time sleep);

our @EXPORT = qw(wait_until detail_of $PATIENT);

$SIG{PIPE} = 'IGNORE';

# A queue deadline in milliseconds that no test sees the end of: an answer in time then proves that it had not to wait for it.
our $PATIENT = 600_000;

# How long a test waits for what must come. Nothing is said about how soon: the machine may be busy with something else.
my $WAIT_SECONDS = 180;

# Sluice->start('name', preload => 'pg_sluice', conf => {setting => value}, roles => [names], extension => 1, streaming => 0,
# policy => {document}). The node's name is its label, so that of the policy.
sub start {
  my ($class, $name, %arg) = @_;
  my $node = PostgreSQL::Test::Cluster->new($name);
  $node->init($arg{streaming} ? (allows_streaming => $arg{streaming}) : ());
  my $self = $class->wrap($node, %arg);
  $self->configure(%arg);
  $node->start;
  $self->prepare(%arg);
  return $self;
}

sub wrap {
  my ($class, $node, %arg) = @_;
  return bless { node => $node, name => $arg{label} // $node->name, generation => 0, permits => 10, wires => [], admin => undef, pid => $$ }, $class;
}

sub configure {
  my ($self, %arg) = @_;
  my %conf = (
    listen_addresses => "'127.0.0.1'", log_statement => "'none'", log_min_messages => "'warning'", max_connections => 40,
    max_wal_senders => 4, wal_level => "'replica'", 'pg_sluice.database' => "'postgres'", autovacuum => 'off',
    shared_buffers => "'16MB'", superuser_reserved_connections => 3, %{ $arg{conf} // {} });
  # What is left beside the reserves of a default document (9) and the test's own way in.
  $self->{permits} = $conf{max_connections} - 10;
  my $preload = $arg{preload} // 'pg_sluice';
  $conf{shared_preload_libraries} //= "'$preload'";
  $self->{node}->append_conf('postgresql.conf', join '', map { "$_ = $conf{$_}\n" } grep { defined $conf{$_} } sort keys %conf);
  return;
}

sub prepare {
  my ($self, %arg) = @_;
  my $admin = $self->admin;
  $admin->run('CREATE EXTENSION pg_sluice') if $arg{extension} // 1;
  $admin->run("CREATE ROLE $_ LOGIN") for @{ $arg{roles} // [] };
  $self->apply($arg{policy}) if $arg{policy};
  return;
}

sub node { return $_[0]{node}; }
sub port { return $_[0]{node}->port; }
sub socket_dir { return $_[0]{node}->host; }
sub data_dir { return $_[0]{node}->data_dir; }

# ---- sessions ----

# open_session('role', database =>, tcp => 0|1, params => {}): a Sluice::Wire, logged in or refused.
sub try_connect {
  my ($self, $user, %arg) = @_;
  my $wire = Sluice::Wire->connect($self->address(%arg), user => $user, database => $arg{database} // 'postgres',
    params => $arg{params}, timeout => $arg{timeout});
  $self->track($wire);
  return $wire;
}

# The socket alone: the caller sends the startup packet itself.
sub open_socket { my ($self, %arg) = @_; return $self->track(Sluice::Wire->open($self->address(%arg))); }

sub address { my ($self, %arg) = @_; return (host => $arg{tcp} ? '127.0.0.1' : $self->socket_dir, port => $self->port); }

sub track {
  my ($self, $wire) = @_;
  my $wires = $self->{wires};
  @$wires = grep { defined } @$wires;
  push @$wires, $wire;
  weaken($wires->[-1]);
  return $wire;
}

sub connect {
  my ($self, $user, %arg) = @_;
  my $wire = $self->try_connect($user, %arg);
  confess "login of $user refused: " . Sluice::Wire::describe($wire->error) unless $wire->logged_in;
  return $wire;
}

# The way in: the bootstrap superuser over the Unix socket, whom the ledger never counts.
sub admin {
  my ($self) = @_;
  if (!$self->{admin} || !$self->{admin}->is_open) {
    $self->{admin} = Sluice::Wire->connect($self->address, user => $self->superuser, database => 'postgres');
    confess 'no way in: ' . Sluice::Wire::describe($self->{admin}->error) unless $self->{admin}->logged_in;
  }
  return $self->{admin};
}

sub superuser { return $ENV{PGUSER} // getpwuid($>); }
sub forget_admin { my ($self) = @_; $self->{admin}->close if $self->{admin}; $self->{admin} = undef; return; }

sub run { my ($self, $sql) = @_; return $self->admin->run($sql); }
sub value { my ($self, $sql) = @_; return $self->admin->value($sql); }
sub rows { my ($self, $sql) = @_; return $self->admin->rows($sql); }

# The setting that forces parallel plans: it was renamed in 16.
sub parallel_setting { my ($self) = @_; return $self->value('SHOW server_version_num') >= 160000 ? 'debug_parallel_query' : 'force_parallel_mode'; }

sub close_all {
  my ($self) = @_;
  for my $wire (grep { defined } @{ $self->{wires} }) { $wire->close; }
  $self->{wires} = [];
  return;
}

# ---- the server ----

# Not by the node's own restart, which takes no mode.
sub restart { my ($self, $mode) = @_; $self->stop($mode); $self->{node}->start; return; }
sub stop { my ($self, $mode) = @_; $self->forget_admin; $self->{node}->stop($mode // 'fast'); return; }

# Changes settings in the file and sends HUP, as an operator without a login would.
sub set_and_hup {
  my ($self, %conf) = @_;
  $self->{node}->append_conf('postgresql.conf', join '', map { "$_ = $conf{$_}\n" } sort keys %conf);
  kill 'HUP', $self->postmaster_pid;
  return;
}

sub postmaster_pid {
  my ($self) = @_;
  my ($pid) = split /\n/, slurp_file($self->data_dir . '/postmaster.pid');
  return $pid;
}

# ---- policies ----

# A complete document from what a test cares about. classes => {name => permits | {fields}}.
sub document {
  my ($self, %field) = @_;
  my $classes = delete $field{classes} // { interactive => 10 };
  my %class;
  for my $name (keys %$classes) {
    my $value = $classes->{$name};
    $class{$name} = ref $value ? { permits => 10, maxQueue => 1000, %$value } : { permits => $value + 0, maxQueue => 1000 };
  }
  my $role = delete $field{server_role} // 'write';
  return {
    schema => 'dbAdmissionPolicy.v1', database => "$self->{name}/$role", generation => ++$self->{generation},
    serverSessionPermits => $self->{permits}, adminReserve => 3, loginHeadroom => 3, fairness => 'weighted-deficit-v2',
    executionClasses => \%class, %field };
}

sub json { my ($document) = @_; return JSON::PP->new->canonical->encode($document); }

sub publish_sql { my ($document) = @_; return 'SELECT * FROM sluice.publish($policy$' . json($document) . '$policy$::jsonb)'; }

sub activate_sql {
  my ($generation, %arg) = @_;
  my $mode = $arg{mode} // 'enforce';
  return "SELECT * FROM sluice.activate(generation => $generation, mode => '$mode'"
    . ($arg{over_limit} ? ", over_limit => '$arg{over_limit}'" : '') . ')';
}

# Publishes and activates. Tests that change limits under open sessions say over_limit => 'drain'.
sub apply {
  my ($self, $fields, %arg) = @_;
  my $document = $fields->{schema} ? $fields : $self->document(%$fields);
  $self->run(publish_sql($document));
  my $result = $self->run(activate_sql($document->{generation}, %arg));
  return $arg{want_rows} ? $result->{rows} : $document->{generation};
}

# ---- the ledger ----

# Waits until the condition holds; fails the test file loudly when it never does.
sub wait_until {
  my ($condition, $what, $seconds) = @_;
  my $until = time + ($seconds // $WAIT_SECONDS);
  my $pause = 0.002;
  while (1) {
    return 1 if $condition->();
    if (time > $until) { diag("waited in vain for: $what"); return 0; }
    sleep $pause;
    $pause *= 1.3 if $pause < 0.05;
  }
}

sub holders {
  my ($self, $class) = @_;
  return $self->value('SELECT coalesce(sum(in_use), 0) FROM sluice.classes' . _where_class($class));
}

sub waiters {
  my ($self, $class) = @_;
  return $self->value('SELECT coalesce(sum(queued), 0) FROM sluice.classes' . _where_class($class));
}

sub _where_class { my ($class) = @_; return defined $class ? " WHERE class = '$class'" : ''; }

sub wait_waiters {
  my ($self, $count, $class) = @_;
  return wait_until(sub { $self->waiters($class) == $count }, "$count waiters" . ($class ? " in $class" : ''));
}

# How many wait at once is the machine's affair where clients come and go.
sub wait_some_waiter {
  my ($self, $class) = @_;
  return wait_until(sub { $self->waiters($class) > 0 }, 'a waiter' . ($class ? " in $class" : ''));
}

sub wait_holders {
  my ($self, $count, $class) = @_;
  return wait_until(sub { $self->holders($class) == $count }, "$count holders" . ($class ? " in $class" : ''));
}

sub wait_active {
  my ($self, $wire) = @_;
  my $pid = $wire->pid;
  return wait_until(sub { ($self->value("SELECT state FROM pg_stat_activity WHERE pid = $pid") // '') eq 'active' }, "pid $pid active");
}

# Sessions of everyone but the way in, as the ledger counts them.
sub sessions { my ($self) = @_; return $self->value("SELECT count(*) FROM sluice.sessions WHERE pid <> pg_backend_pid()"); }

sub wait_sessions { my ($self, $count) = @_; return wait_until(sub { $self->sessions == $count }, "$count sessions"); }

# How many sessions the ledger should know, as PostgreSQL counts them: all clients but superusers on the Unix socket.
sub real_sessions {
  my ($self) = @_;
  return $self->value(q{SELECT count(*) FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
    WHERE a.backend_type IN ('client backend', 'walsender') AND NOT (r.rolsuper AND a.client_addr IS NULL)});
}

# Transactions that were given a permit since the server started.
sub admitted { my ($self) = @_; return $self->value('SELECT coalesce(sum(granted), 0) FROM sluice.classes'); }

# A column of the one row of sluice.status.
sub status { my ($self, $column) = @_; return $self->value("SELECT $column FROM sluice.status"); }

sub discrepancies { my ($self) = @_; return $self->rows('SELECT * FROM sluice.reconcile()'); }

# One test: no permit held, nobody queued, no discrepancy, and as many sessions in the ledger as there are backends. Sessions that
# the test left open are closed first, and must be gone (open => 1 keeps them: then only the statements' permits must be back).
sub ledger_is_zero {
  my ($self, $name, %arg) = @_;
  local $Test::Builder::Level = $Test::Builder::Level + 1;
  $self->close_all unless $arg{open};
  my ($problem, $until) = ('', time + $WAIT_SECONDS);
  while (1) {
    $problem = $self->_imbalance(%arg);
    last if $problem eq '' || time > $until;
    sleep 0.02;
  }
  return is($problem, '', $name);
}

sub _imbalance {
  my ($self, %arg) = @_;
  my @problem = map { "class $_->[0]: in_use=$_->[1] queued=$_->[2]" }
    @{ $self->rows('SELECT class, in_use, queued FROM sluice.classes WHERE in_use <> 0 OR queued <> 0') };
  push @problem, map { 'discrepancy: ' . join ', ', map { $_ // 'null' } @$_ } @{ $self->discrepancies };
  my ($ledger, $real) = ($self->sessions, $self->real_sessions);
  push @problem, "sessions: ledger $ledger, server $real" if $ledger != $real || ($ledger && !$arg{open});
  return join '; ', @problem;
}

# One test: no backend or worker died by a signal, no PANIC, no pg_sluice: broken invariant was reported since the server started.
sub server_log_is_clean {
  my ($self, $name) = @_;
  local $Test::Builder::Level = $Test::Builder::Level + 1;
  my @bad = grep { /PANIC|was terminated by signal|TRAP:|pg_sluice: broken invariant/ } split /\n/, slurp_file($self->{node}->logfile);
  return is(join("\n", @bad), '', $name);
}

# ---- the contract with callers ----

# DETAIL of a refusal as a hash: reason, retry, retry_after_ms, rule, used, limit, class, tenant, ticket, generation.
sub detail_of {
  my ($error) = @_;
  my $line = $error ? $error->{detail} // '' : '';
  return {} unless $line =~ s/^sluice //;
  my %pair = map { my ($key, $value) = split /=/, $_, 2; ($key => ($value // '') =~ s/%([0-9a-f]{2})/chr hex $1/ger) } split / /, $line;
  return \%pair;
}

sub DESTROY {
  my ($self) = @_;
  return if $self->{pid} != $$;
  local $@;
  eval { $self->close_all; };
  return;
}

1;
