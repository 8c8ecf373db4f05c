# Submits batch jobs by Slurm's own perl API, and says which jobs wait: a line of output for each line of its input, for
# as long as there is input.
#
#     NUMBER NAME=VALUE NAME=VALUE ...   ->   NUMBER ok JOBID CPU
#     NUMBER waiting                     ->   NUMBER ok HOWMANY CPU JOB JOB ...   or, as the last time,   NUMBER same 0 CPU
#     either                             ->   NUMBER no ERRNO CPU WORDS
#
# VALUE and WORDS are percent-encoded. NAME is a field of the job description, `script_path`, or env.VARIABLE. JOB is
# ID,ARRAY,PROCESSORS,REASON,UID,NAME, each percent-encoded; ARRAY is as squeue has it. CPU is the milliseconds of
# processor time that this program has taken so far. It begins with: ready API, which is the number of libslurm's
# interface. Nothing but what perl-base and Slurm's module have is used.
use strict;
use warnings;
use Slurm;

# slurm.h, slurm_errno.h
use constant { SHOW_ALL => 0x01, SHOW_LOCAL => 0x10, JOB_STATE_BASE => 0xff, JOB_PENDING => 0, NO_CHANGE => 1900 };

$0 = 'koala-slurm-submit';
open(my $out, '>&', \*STDOUT) or die;
open(STDOUT, '>&', \*STDERR) or die;    # whatever prints, prints elsewhere
select((select($out), $| = 1)[0]);

my $slurm = Slurm::new() or die;
my ($api) = $slurm->api_version();
print $out "ready $api\n";
while (my $line = <STDIN>) {
    chomp $line;
    my ($number, @words) = split / /, $line;
    my @said = "@words" eq 'waiting' ? waiting() : submit(map { decoded($_) } @words);
    my ($user, $system) = times;
    print $out join(' ', $number, @said[0, 1], int(1000 * ($user + $system)), @said[2 .. $#said]), "\n";
}

# The controller answers in a fraction of the time if no job has changed since it was asked last.
sub waiting {
    our $updated_at ||= 0;
    my $found = $slurm->load_jobs($updated_at, SHOW_ALL | SHOW_LOCAL);
    my $errno = $found ? 0 : $slurm->get_errno();
    return ('same', 0) if $errno == NO_CHANGE;
    return ('no', $errno, encoded($slurm->strerror($errno))) if !$found;
    $updated_at = $found->{last_update};
    my @jobs = grep { ($_->{job_state} & JOB_STATE_BASE) == JOB_PENDING } @{ $found->{job_array} };
    return ('ok', scalar @jobs, map { job_entry($_) } @jobs);
}

sub job_entry {
    my ($job) = @_;
    my $reason = $job->{state_desc} || $slurm->job_reason_string($job->{state_reason});
    my @fields = ($job->{job_id}, array_of($job), $job->{num_cpus}, $reason, $job->{user_id}, $job->{name});
    return join ',', map { encoded($_ // '') } @fields;
}

sub array_of {
    my ($job) = @_;
    return $job->{job_id} if !$job->{array_job_id};
    return "$job->{array_job_id}_[$job->{array_task_str}]" if defined $job->{array_task_str};
    return "$job->{array_job_id}_$job->{array_task_id}";
}

sub submit {
    my (%job, %environment);
    %environment = %ENV;
    for (@_) {
        my ($name, $value) = split /=/, $_, 2;
        if ($name =~ s/^env\.//) { $environment{$name} = $value }
        else { $job{$name} = $value }
    }
    my $path = delete $job{script_path};
    open(my $script, '<:raw', $path) or return ('no', 0, encoded("$path: $!"));
    $job{script} = do { local $/; <$script> };
    close $script;
    $job{argv} = [$path];
    $job{environment} = \%environment;
    ($job{user_id}, $job{group_id}) = ($<, $( + 0);
    my $answer = $slurm->submit_batch_job(\%job);
    return ('ok', $answer->{job_id}) if $answer && $answer->{job_id};
    my $errno = $slurm->get_errno();
    return ('no', $errno, encoded($slurm->strerror($errno)));
}

sub decoded { my ($word) = @_; $word =~ s/%([0-9A-F]{2})/chr hex $1/ge; return $word }

sub encoded { my ($text) = @_; $text =~ s/([^A-Za-z0-9._-])/sprintf '%%%02X', ord $1/ge; return $text }
