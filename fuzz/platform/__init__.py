"""What the engines need from the machine: Spark, Java, JSON, processes, progress, files and version of the code."""
