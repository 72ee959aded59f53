# A storm of connections that never finish their login, from a process of its own: a burst, then a steady rate. Connections that
# the server ends are given up, not repeated beyond the rate.
package Sluice::Storm;

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Time::HiRes qw(time sleep);

# start(port =>, burst =>, rate => per second, say => bytes to send at once or '' for silence)
sub start {
  my ($class, %arg) = @_;
  my $pid = fork;
  die "fork: $!" unless defined $pid;
  if (!$pid) {
    _run(%arg);
    POSIX::_exit(0);
  }
  return bless { pid => $pid, owner => $$ }, $class;
}

# What a client sends that then stalls at the password prompt.
sub startup_packet {
  my ($user, %params) = @_;
  my $body = join '', map { "$_\0" } user => $user, database => 'postgres', %params;
  return pack('NN', length($body) + 9, 196608) . $body . "\0";
}

sub _run {
  my (%arg) = @_;
  local $SIG{PIPE} = 'IGNORE';
  my $go_on = 1;
  local $SIG{TERM} = sub { $go_on = 0; };
  my $open = IO::Select->new;
  my ($opened, $started) = (0, time);
  while ($go_on) {
    my $wanted = $arg{burst} + $arg{rate} * (time - $started);
    while ($go_on && $opened < $wanted) {
      $opened++;
      my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $arg{port}, Proto => 'tcp') or next;
      syswrite($socket, $arg{say}) if length $arg{say};
      $open->add($socket);
    }
    for my $socket ($open->can_read(0.02)) {
      next if sysread($socket, my $bytes, 4096);
      $open->remove($socket);
      close $socket;
    }
    sleep 0.01;
  }
  return;
}

sub stop {
  my ($self) = @_;
  return unless $self->{pid};
  kill 'TERM', $self->{pid};
  waitpid $self->{pid}, 0;
  $self->{pid} = 0;
  return;
}

sub DESTROY { my ($self) = @_; local ($?, $!, $@); $self->stop if $self->{owner} == $$; return; }

1;
