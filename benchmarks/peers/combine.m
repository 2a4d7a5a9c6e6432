% Calls the partition trees of random-tree-parallel-MCMC on draws in a file.
% Arguments: as combine.R has them; the peer is "kd pairwise", "ml pairwise", "kd onestage" or "ml onestage".
given = argv();
words = strsplit(given{1});
warning('off', 'all');
pkg load statistics
addpath(fullfile(given{2}, 'random-tree-parallel-MCMC/src/PART'));
addpath(fullfile(given{2}, 'random-tree-parallel-MCMC/src/PART/cut'));
addpath(fullfile(given{2}, 'random-tree-parallel-MCMC/src/utils'));
% What is in the folder "octave" beside this file takes the place of what Octave cannot run.
addpath(fullfile(fileparts(mfilename('fullpath')), 'octave'));

shape = cellfun(@str2num, given(4:6))';
file = fopen(given{3});
draws = reshape(fread(file, prod(shape), 'double'), fliplr(shape));
fclose(file);
sub_chains = cell(1, shape(1));
for b = 1:shape(1)
    sub_chains{b} = draws(:, :, b)';
end
rand('twister', str2num(given{7}));
randn('twister', str2num(given{7}));
options = part_options('cut_type', words{1}, 'parallel', false, 'verbose', 0);
combine = str2func(['aggregate_PART_' words{2}]);

seconds = [];
while numel(seconds) < str2num(given{8}) && sum(seconds) < str2num(given{9})
    begun = cputime();
    combined = combine(sub_chains, options);
    seconds(end + 1) = cputime() - begun;
end
file = fopen(given{10}, 'w');
fwrite(file, combined', 'double');
fclose(file);
file = fopen(given{11}, 'w');
fprintf(file, '%.9g ', seconds);
fclose(file);
