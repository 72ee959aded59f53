# A client of PostgreSQL's wire protocol (3.0) in pure Perl. libpq hides the SQLSTATE, DETAIL and HINT of a refused login and
# decides itself when to read; the tests need both in their own hands: raw bytes, half a batch, a cancel at a chosen moment, a
# connection reset. It knows cleartext-free logins only (trust), which is what the private clusters of the tests use.
package Sluice::Wire;

use strict;
use warnings;

use Carp qw(croak);
use Errno qw(EAGAIN EINTR EWOULDBLOCK);
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use Socket qw(SOCK_STREAM SOL_SOCKET SO_LINGER);
use Time::HiRes qw(time sleep);

# Seconds without an answer after which a test gives up; no test says how soon an answer must come.
our $DEFAULT_TIMEOUT = 180;

my %ERROR_FIELD = (
  S => 'localized', V => 'severity', C => 'code', M => 'message', D => 'detail', H => 'hint', W => 'context',
  P => 'position', q => 'internal_query', s => 'schema', t => 'table', c => 'column', n => 'constraint', R => 'routine');

# connect(host => directory or address, port =>, user =>, database =>, params => {name => value}, timeout =>)
# Logs in and reads up to the first ReadyForQuery. Always returns an object; where the login failed, error() says how.
sub connect {
  my ($class, %arg) = @_;
  my $self = $class->open(%arg);
  $self->startup($arg{user}, $arg{database}, $arg{params} // {});
  $self->finish($arg{timeout});
  return $self;
}

# The socket alone, with nothing sent.
sub open {
  my ($class, %arg) = @_;
  my $self = bless {
    host => $arg{host}, port => $arg{port}, in => '', closed => 0, status => '', pid => 0, key => 0,
    parameters => {}, last => undef, user => $arg{user}, socket => undef, nonblocking_error => undef,
  }, $class;
  $self->{socket} = _socket($arg{host}, $arg{port});
  return $self;
}

sub _socket {
  my ($host, $port) = @_;
  # A burst of logins can fill the listen queue: a Unix socket then says EAGAIN at once instead of waiting.
  my $until = time + $DEFAULT_TIMEOUT;
  while (1) {
    my $socket =
      $host =~ m{^/}
      ? IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => "$host/.s.PGSQL.$port")
      : IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port, Proto => 'tcp');
    if ($socket) {
      $socket->autoflush(1);
      return $socket;
    }
    my $why = "$!";
    croak "cannot connect to $host:$port: $why" if time > $until || ($! != EAGAIN && $! != EINTR);
    sleep 0.02;
  }
}

sub startup {
  my ($self, $user, $database, $params) = @_;
  my $body = pack('N', 196608);
  $body .= "user\0$user\0" if defined $user;
  $body .= "database\0$database\0" if defined $database;
  $body .= "$_\0$params->{$_}\0" for sort keys %$params;
  $body .= "\0";
  $self->send_raw(pack('N', length($body) + 4) . $body);
  return $self;
}

# ---- sending ----

sub send_raw {
  my ($self, $bytes) = @_;
  local $SIG{PIPE} = 'IGNORE';
  while (length $bytes) {
    my $n = syswrite($self->{socket}, $bytes);
    if (!defined $n) {
      next if $! == EINTR;
      # The server has gone away; what it said before it went is still to be read.
      return 0;
    }
    substr($bytes, 0, $n) = '';
  }
  return 1;
}

sub message { my ($type, $body) = @_; return $type . pack('N', length($body) + 4) . $body; }

sub query_message { my ($sql) = @_; return message('Q', "$sql\0"); }
sub parse_message { my ($name, $sql) = @_; return message('P', "$name\0$sql\0" . pack('n', 0)); }

sub bind_message {
  my ($portal, $statement, @values) = @_;
  my $body = "$portal\0$statement\0" . pack('n', 0) . pack('n', scalar @values);
  $body .= defined $_ ? pack('N', length $_) . $_ : pack('N', 0xFFFFFFFF) for @values;
  return message('B', $body . pack('n', 0));
}

sub describe_message { my ($kind, $name) = @_; return message('D', "$kind$name\0"); }
sub execute_message { my ($portal, $rows) = @_; return message('E', "$portal\0" . pack('N', $rows // 0)); }
sub close_message { my ($kind, $name) = @_; return message('C', "$kind$name\0"); }
sub sync_message { return message('S', ''); }
sub flush_message { return message('H', ''); }

# One statement through the extended protocol, without Sync.
sub extended_messages {
  my ($sql, @values) = @_;
  return parse_message('', $sql) . bind_message('', '', @values) . describe_message('P', '') . execute_message('', 0);
}

# A fastpath function call ('F') with text arguments.
sub function_call_message {
  my ($oid, @values) = @_;
  my $body = pack('N', $oid) . pack('nn', 1, 0) . pack('n', scalar @values);
  $body .= pack('N', length $_) . $_ for @values;
  return message('F', $body . pack('n', 0));
}

sub send_query { my ($self, $sql) = @_; $self->send_raw(query_message($sql)); return $self; }

# ---- receiving ----

# True as soon as the server has sent something (or closed) that was not read yet.
sub readable {
  my ($self, $timeout) = @_;
  return 1 if length $self->{in} >= 5 || $self->{closed};
  return IO::Select->new($self->{socket})->can_read($timeout // 0) ? 1 : 0;
}

# The next message as {type, body}; undef once the connection is closed. Dies when nothing comes in time.
sub receive {
  my ($self, $timeout) = @_;
  my $until = time + ($timeout // $DEFAULT_TIMEOUT);
  while (1) {
    if (length $self->{in} >= 5) {
      my $length = unpack('N', substr($self->{in}, 1, 4));
      if (length $self->{in} >= 1 + $length) {
        my $type = substr($self->{in}, 0, 1);
        my $body = substr($self->{in}, 5, $length - 4);
        substr($self->{in}, 0, 1 + $length) = '';
        $self->_note($type, $body);
        return { type => $type, body => $body };
      }
    }
    return undef if $self->{closed};
    my $left = $until - time;
    croak "no answer from the server in time (user " . ($self->{user} // '?') . ", pid $self->{pid})" if $left <= 0;
    next unless IO::Select->new($self->{socket})->can_read($left);
    my $n = sysread($self->{socket}, $self->{in}, 65536, length $self->{in});
    next if !defined $n && $! == EINTR;
    $self->{closed} = 1 if !$n;
  }
}

sub _note {
  my ($self, $type, $body) = @_;
  if ($type eq 'K') { ($self->{pid}, $self->{key}) = unpack('NN', $body); }
  elsif ($type eq 'S') { my ($name, $value) = split /\0/, $body; $self->{parameters}{$name} = $value; }
  elsif ($type eq 'Z') { $self->{status} = $body; }
  return;
}

sub fields_of {
  my ($body) = @_;
  my %error;
  for my $field (split /\0/, $body) {
    next unless length $field;
    my $name = $ERROR_FIELD{ substr($field, 0, 1) } or next;
    $error{$name} = substr($field, 1);
  }
  return \%error;
}

sub row_of {
  my ($body) = @_;
  my $count = unpack('n', $body);
  my ($at, @row) = (2);
  for (1 .. $count) {
    my $length = unpack('N', substr($body, $at, 4));
    $at += 4;
    if ($length == 0xFFFFFFFF) { push @row, undef; next; }
    push @row, substr($body, $at, $length);
    $at += $length;
  }
  return \@row;
}

# Reads up to ReadyForQuery or the end of the connection:
# {rows, tags, errors, error (the first), notices, types (the letters in order), status, closed}
sub finish {
  my ($self, $timeout) = @_;
  my %result = (rows => [], tags => [], errors => [], notices => [], types => '', status => '', closed => 0, error => undef);
  my $until = time + ($timeout // $DEFAULT_TIMEOUT);
  while (1) {
    my $left = $until - time;
    my $message = $self->receive($left > 0 ? $left : 0.001);
    if (!$message) { $result{closed} = 1; last; }
    my ($type, $body) = ($message->{type}, $message->{body});
    $result{types} .= $type;
    if ($type eq 'D') { push @{ $result{rows} }, row_of($body); }
    elsif ($type eq 'C') { push @{ $result{tags} }, $body =~ s/\0.*//sr; }
    elsif ($type eq 'E') { push @{ $result{errors} }, fields_of($body); }
    elsif ($type eq 'N') { push @{ $result{notices} }, fields_of($body); }
    elsif ($type eq 'G') { $self->send_raw(message('f', "not wanted\0")); }
    elsif ($type eq 'Z') { $result{status} = $body; last; }
  }
  $result{error} = $result{errors}[0];
  $self->{last} = \%result;
  return \%result;
}

# Reads messages up to the first of one of the given types (or the end).
sub receive_until {
  my ($self, $types, $timeout) = @_;
  my $seen = '';
  while (my $message = $self->receive($timeout)) {
    $seen .= $message->{type};
    return ($message, $seen) if index($types, $message->{type}) >= 0;
  }
  return (undef, $seen);
}

# ---- the common conversations ----

sub query { my ($self, $sql, $timeout) = @_; return $self->send_query($sql)->finish($timeout); }

sub extended {
  my ($self, $sql, @values) = @_;
  $self->send_raw(extended_messages($sql, @values) . sync_message());
  return $self->finish;
}

# Runs SQL that must succeed.
sub run {
  my ($self, $sql, $timeout) = @_;
  my $result = $self->query($sql, $timeout);
  croak describe($result->{error}) . " in: $sql" if $result->{error};
  croak "connection closed in: $sql" if $result->{closed};
  return $result;
}

# Runs SQL again and again until it succeeds: a time limit of milliseconds may hit the very statement that lifts it.
sub persist {
  my ($self, $sql) = @_;
  my $until = time + $DEFAULT_TIMEOUT;
  while (my $code = $self->code($sql)) { croak "$code, over and over, in: $sql" if time > $until; }
  return;
}

sub rows { my ($self, $sql) = @_; return $self->run($sql)->{rows}; }

sub value {
  my ($self, $sql) = @_;
  my $row = $self->rows($sql)->[0];
  return $row ? $row->[0] : undef;
}

# SQLSTATE of the answer, '' when all is well.
sub code { my ($self, $sql, $timeout) = @_; my $error = $self->query($sql, $timeout)->{error}; return $error ? $error->{code} : ''; }

sub describe {
  my ($error) = @_;
  return 'no error' unless $error;
  return join ' | ', map { "$_=" . ($error->{$_} // '') } qw(severity code message detail hint);
}

# ---- what is known ----

sub pid { return $_[0]{pid}; }
sub status { return $_[0]{status}; }
sub last_result { return $_[0]{last}; }
sub parameter { return $_[0]{parameters}{ $_[1] }; }
sub is_open { return !$_[0]{closed}; }

# The error that ended the login (or the last conversation), undef when there was none.
sub error { return $_[0]{last} ? $_[0]{last}{error} : undef; }
sub logged_in { my ($self) = @_; return $self->{status} ne '' && !$self->{closed}; }

# ---- ending ----

# Asks the server to cancel what this session runs, over a connection of its own, and waits until the postmaster took it.
sub cancel {
  my ($self) = @_;
  my $socket = _socket($self->{host}, $self->{port});
  local $SIG{PIPE} = 'IGNORE';
  syswrite($socket, pack('NNNN', 16, 80877102, $self->{pid}, $self->{key}));
  IO::Select->new($socket)->can_read($DEFAULT_TIMEOUT);
  CORE::close($socket);
  return;
}

sub close {
  my ($self) = @_;
  return unless $self->{socket};
  $self->send_raw(message('X', ''));
  $self->drop;
  return;
}

# Closes the socket without a word, as a dying client does.
sub drop {
  my ($self) = @_;
  CORE::close($self->{socket}) if $self->{socket};
  $self->{socket} = undef;
  $self->{closed} = 1;
  return;
}

# Ends a TCP connection by RST.
sub reset {
  my ($self) = @_;
  setsockopt($self->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
  return $self->drop;
}

sub DESTROY { my ($self) = @_; local ($@, $!); $self->drop if $self->{socket}; return; }

1;
