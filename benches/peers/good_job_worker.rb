# good_job on the work of `make bench`: `fill N`, then `drain N` with eight jobs at a time. Its
# worker is that of `good_job start` with default settings, and stops after the last job.
ENV["RAILS_ENV"] = "production"
require "logger"
require "tmpdir"
require "rails"
require "active_record/railtie"
require "active_job/railtie"
require "good_job"

THREADS = 8
WHAT = ARGV[0]
COUNT = Integer(ARGV[1])
FOLDER = Dir.mktmpdir
at_exit { FileUtils.remove_entry(FOLDER) }

class Bench < Rails::Application
  config.root = FOLDER
  config.load_defaults Rails::VERSION::STRING.to_f
  config.eager_load = true
  config.secret_key_base = "none"
  config.logger = Logger.new(nil)
  config.active_job.queue_adapter = :good_job
  config.good_job.execution_mode = :external
  config.good_job.max_threads = THREADS
end
Rails.application.initialize!
# One connection for each thread and three for the worker itself, as its manual advises.
ActiveRecord::Base.establish_connection(url: ENV.fetch("DATABASE_URL"), pool: THREADS + 3)

class Shell < ActiveJob::Base
  LEFT = Concurrent::CountDownLatch.new(COUNT)

  def perform
    system("sh", "-c", "true", in: File::NULL, exception: true)
    LEFT.count_down
  end
end

def create_tables
  require "rails/generators"
  require "generators/good_job/install_generator"
  GoodJob::InstallGenerator.start([], destination_root: FOLDER, quiet: true)
  ActiveRecord::Migrator.migrations_paths = ["#{FOLDER}/db/migrate"]
  ActiveRecord::Tasks::DatabaseTasks.migrate
end

if WHAT == "fill"
  create_tables
  GoodJob::Bulk.enqueue(Array.new(COUNT) { Shell.new })
else
  GoodJob.capsule.start
  Shell::LEFT.wait
  GoodJob.capsule.shutdown
end
