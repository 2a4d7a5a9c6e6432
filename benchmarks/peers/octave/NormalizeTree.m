function tree = NormalizeTree(tree, unused, log_total)
    % Divide the leaves' probabilities by their sum. The peer's function of this name keeps its nodes in an array,
    % and Octave has no arrays of objects. Its result does not enter the combined draws.
    if isempty(tree.left) && isempty(tree.right)
        tree.log_prob = tree.log_prob - log_total;
        tree.log_density = tree.log_density - log_total;
    else
        NormalizeTree(tree.left, unused, log_total);
        NormalizeTree(tree.right, unused, log_total);
    end
end
