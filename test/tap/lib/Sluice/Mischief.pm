# One misbehaving client: random transactions of every shape over one connection, with errors, time limits, cancels and
# disconnects at any moment. What it was told and did not expect it writes to a file; rows whose COMMIT was acknowledged as well.
package Sluice::Mischief;

use strict;
use warnings;

use Sluice::Wire;
use Time::HiRes qw(time sleep);

# What may happen to a client here. 40P01: two updaters met. 53200: all prepared-transaction slots are taken.
my %EXPECTED = map { $_ => 1 } qw(22012 57014 57P01 53000 53300 53200 40P01 25P02 42704);

# Mischief->new(number =>, seed =>, address => [host =>, port =>], folder =>)
sub new {
  my ($class, %arg) = @_;
  my $self = bless { %arg, wire => undef, transactions => 0, serial => 0 }, $class;
  srand $arg{seed};
  open $self->{report}, '>>', "$arg{folder}/report.$arg{number}" or die "report: $!";
  $self->{report}->autoflush(1);
  return $self;
}

sub run {
  my ($self) = @_;
  my @shape = (
    (\&plain) x 12, (\&many) x 10, (\&block) x 8, (\&savepoints) x 4, (\&pipeline) x 6, (\&failing_pipeline) x 3, (\&two_phase) x 2,
    (\&procedure) x 2, (\&handler) x 2, (\&error) x 2, (\&impatient) x 2, (\&cancelled) x 2, \&copy, \&cursor, \&temporary, \&leaves_running, \&leaves_open,
    \&leaves_pipeline, \&leaves_copy);
  while (!-e "$self->{folder}/stop") {
    eval { $self->connected; $shape[ rand @shape ]->($self); 1 } or $self->note("died: $@");
    $self->{transactions}++;
  }
  eval { $self->{wire}->close if $self->{wire} };
  return;
}

sub note { my ($self, $text) = @_; $text =~ s/\s+/ /g; print { $self->{report} } "$text\n"; return; }

sub connected {
  my ($self) = @_;
  while (!$self->{wire} || !$self->{wire}->is_open) {
    $self->{wire} = Sluice::Wire->connect(@{ $self->{address} }, user => 'app', database => 'postgres');
    last if $self->{wire}->logged_in;
    $self->check($self->{wire}->last_result);
    $self->{wire} = undef;
    return $self->connected if -e "$self->{folder}/stop" ? die "stopped\n" : sleep 0.05;
  }
  return;
}

# Looks at an answer; true when it was a success.
sub check {
  my ($self, $answer, @also) = @_;
  if (my $error = $answer->{error}) {
    $self->note("unexpected $error->{code} $error->{message}") unless $EXPECTED{ $error->{code} } || grep { $error->{code} eq $_ } @also;
    return 0;
  }
  return !$answer->{closed};
}

sub query { my ($self, $sql) = @_; return $self->check($self->{wire}->query($sql)); }

# Ends a block whatever state it is in.
sub end_block { my ($self, $how) = @_; return $self->{wire}->is_open ? $self->query($how) : 0; }

sub row { my ($self) = @_; return "('$self->{number}-" . ++$self->{serial} . "')"; }
sub acknowledged { my ($self) = @_; return $self->note("row $self->{number}-$self->{serial}"); }

sub plain { my ($self) = @_; $self->query('SELECT pg_sleep(' . rand(0.002) . ')'); return; }

# Ten short transactions written at once: each ends and the next one begins without a pause in between.
sub many {
  my ($self) = @_;
  $self->{wire}->send_raw(join '', map { Sluice::Wire::query_message(rand() < 0.1 ? 'SELECT 1/g FROM generate_series(0, 0) g' : 'SELECT 1') } 1 .. 10);
  for (1 .. 10) { my $answer = $self->{wire}->finish; $self->check($answer); last if $answer->{closed}; }
  return;
}

sub block {
  my ($self) = @_;
  my ($from, $to) = map { 1 + int rand 20 } 1 .. 2;
  $self->query('BEGIN') or return;
  my $ok = $self->query("UPDATE account SET balance = balance - 1 WHERE id = $from")
    && $self->query("UPDATE account SET balance = balance + 1 WHERE id = $to")
    && $self->query('INSERT INTO written VALUES ' . $self->row);
  my $done = $self->end_block($ok && rand() < 0.8 ? 'COMMIT' : 'ROLLBACK');
  $self->acknowledged if $done && ($self->{wire}->last_result->{tags}[0] // '') eq 'COMMIT';
  return;
}

sub savepoints {
  my ($self) = @_;
  $self->query('BEGIN') or return;
  for (1 .. 1 + int rand 3) {
    $self->query('SAVEPOINT s') or last;
    $self->query(rand() < 0.5 ? 'SELECT 1/g FROM generate_series(0, 0) g' : 'SELECT count(*) FROM account');
    $self->end_block('ROLLBACK TO s') or last;
  }
  $self->end_block(rand() < 0.5 ? 'COMMIT' : 'ROLLBACK');
  return;
}

sub pipeline {
  my ($self) = @_;
  my $row = $self->row;
  $self->{wire}->send_raw(join('', map { Sluice::Wire::extended_messages($_) } 'SELECT 1', "INSERT INTO written VALUES $row", 'SELECT count(*) FROM account')
      . Sluice::Wire::sync_message());
  $self->acknowledged if $self->check($self->{wire}->finish);
  return;
}

sub failing_pipeline {
  my ($self) = @_;
  $self->{wire}->send_raw(join('', map { Sluice::Wire::extended_messages($_) } 'SELECT 1', 'SELECT 1/g FROM generate_series(0, 0) g', 'SELECT 2')
      . Sluice::Wire::sync_message());
  $self->check($self->{wire}->finish);
  return;
}

sub two_phase {
  my ($self) = @_;
  my $row = $self->row;
  my $name = "$self->{number}-$self->{serial}-$$";
  $self->query('BEGIN') or return;
  my $ok = $self->query("INSERT INTO written VALUES $row");
  return $self->end_block('ROLLBACK') unless $ok;
  $self->query("PREPARE TRANSACTION '$name'") or return;
  return $self->query("ROLLBACK PREPARED '$name'") if rand() < 0.3;
  $self->acknowledged if $self->query("COMMIT PREPARED '$name'");
  return;
}

sub procedure { my ($self) = @_; $self->query('CALL work(' . (1 + int rand 4) . ')'); return; }
sub handler { my ($self) = @_; $self->query('DO $$ BEGIN FOR i IN 1 .. 5 LOOP BEGIN PERFORM 1/(i - i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$'); return; }
sub error { my ($self) = @_; $self->query('SELECT 1/g FROM generate_series(0, 0) g'); return; }

sub impatient {
  my ($self) = @_;
  $self->query('SET statement_timeout = ' . (1 + int rand 25)) or return;
  $self->query('SELECT pg_sleep(0.01)');
  $self->end_block('SET statement_timeout = 0');
  return;
}

sub cancelled {
  my ($self) = @_;
  $self->{wire}->send_query('SELECT pg_sleep(0.02)');
  sleep rand 0.02;
  $self->{wire}->cancel;
  $self->check($self->{wire}->finish);
  return;
}

sub copy {
  my ($self) = @_;
  my $row = $self->row;
  $self->{wire}->send_query('COPY written FROM STDIN');
  my ($message) = $self->{wire}->receive_until('GEZ');
  if ($message && $message->{type} eq 'G') {
    $self->{wire}->send_raw(Sluice::Wire::message('d', $row =~ s/[('')]//gr . "\n") . Sluice::Wire::message(rand() < 0.7 ? ('c', '') : ('f', "no\0")));
  }
  my $answer = $self->{wire}->finish;
  my $ok = $self->check($answer);
  $self->acknowledged if $ok && ($answer->{tags}[0] // '') eq 'COPY 1';
  return;
}

sub cursor {
  my ($self) = @_;
  $self->query('BEGIN') or return;
  $self->query('DECLARE c CURSOR WITH HOLD FOR SELECT id FROM account') && $self->query('FETCH 3 FROM c');
  $self->end_block('COMMIT');
  if ($self->{wire}->is_open) { $self->check($self->{wire}->query('CLOSE c'), '34000'); }
  return;
}

sub temporary { my ($self) = @_; $self->check($self->{wire}->query('CREATE TEMP TABLE mine (i int)'), '42P07'); return; }

# Disconnects: the next transaction starts with a new connection.
sub leave { my ($self) = @_; rand() < 0.5 ? $self->{wire}->reset : $self->{wire}->drop; $self->{wire} = undef; return; }
sub leaves_running { my ($self) = @_; $self->{wire}->send_query('SELECT pg_sleep(0.05)'); sleep rand 0.05; return $self->leave; }
sub leaves_open { my ($self) = @_; $self->query('BEGIN') && $self->query('UPDATE account SET balance = balance WHERE id = 1'); return $self->leave; }

sub leaves_pipeline {
  my ($self) = @_;
  $self->{wire}->send_raw(Sluice::Wire::extended_messages('SELECT 1') . substr(Sluice::Wire::bind_message('', ''), 0, 7));
  sleep rand 0.02;
  return $self->leave;
}

sub leaves_copy { my ($self) = @_; $self->{wire}->send_query('COPY written FROM STDIN'); sleep rand 0.02; return $self->leave; }

1;
