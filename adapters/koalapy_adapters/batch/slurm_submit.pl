# Submits batch jobs by Slurm's own perl API, one for each line of its input, for as long as there is input.
#
#     NUMBER NAME=VALUE NAME=VALUE ...   ->   NUMBER ok JOBID CPU   or   NUMBER no ERRNO CPU WORDS
#
# VALUE and WORDS are percent-encoded. NAME is a field of the job description, `script_path`, or env.VARIABLE. CPU is
# the milliseconds of processor time that this program has taken so far. It begins with: ready API, which is the
# number of libslurm's interface. Nothing but what perl-base and Slurm's module have is used.
use strict;
use warnings;
use Slurm;

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
    my @said = submit(map { decoded($_) } @words);
    my ($user, $system) = times;
    print $out join(' ', $number, @said[0, 1], int(1000 * ($user + $system)), @said[2 .. $#said]), "\n";
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
