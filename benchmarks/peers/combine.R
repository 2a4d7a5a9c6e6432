# Calls one function of R's packages on draws in a file.
# Arguments: peer, folder of the sources, draws (B x J x d doubles, d fastest), B, J, d, seed, most repetitions,
# seconds after which none is started, and where to write the combined draws and the seconds of each repetition.
given <- commandArgs(trailingOnly = TRUE)
peer <- given[1]
folder <- given[2]
shape <- as.integer(given[4:6])
subchain <- array(readBin(given[3], "double", prod(shape)), dim = rev(shape))
set.seed(as.integer(given[7]))

read <- function(...) for (file in file.path(folder, c(...))) source(file)
by_columns <- function(call) {
  read("parallelMCMCcombine/R/consensusMCcov.R", "parallelMCMCcombine/R/consensusMCindep.R",
       "parallelMCMCcombine/R/sampleAvg.R", "parallelMCMCcombine/R/semiparamDPE.R")
  function() get(call)(subchain)
}
by_rows <- function(method) {
  read("weierstrass/R/weierstrass.r")
  samples <- lapply(seq_len(shape[1]), function(b) t(subchain[, , b]))
  function() t(weierstrass(samples, method = method, display = FALSE))
}
if (peer == "semiparamDPE") library(mvtnorm)
if (peer == "importance") library(MASS)
run <- switch(peer, reject = by_rows("reject"), importance = by_rows("importance"), by_columns(peer))

seconds <- c()
while (length(seconds) < as.integer(given[8]) && sum(seconds) < as.numeric(given[9])) {
  begun <- sum(proc.time()[1:2])
  combined <- run()
  seconds <- c(seconds, sum(proc.time()[1:2]) - begun)
}
writeBin(as.double(combined), given[10])
cat(seconds, file = given[11])
